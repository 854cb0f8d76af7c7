"""Writes the tables of docs/reproduction.md, and docs/results/ from the folders of finished studies.

Usage: python docs/write_reproduction.py [folder of a finished study ...]
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pandas as pd

DOCS = Path(__file__).parent
KEYS = ["algorithm", "split", "seed"]
IN_ORDER = "labels_per_party(deal=in_order)"  # as the thesis deals them
COLUMNS = {
    "iid": "IID",
    "thesis_dirichlet": "label skew, shards",
    "label_dirichlet": "label skew, division",
    "quantity_skew": "quantity skew",
    IN_ORDER: "labels per party",
    "labels_per_party(deal=random)": "labels per party, random",
    "feature_noise": "noise",
}
IN_THESIS = ["iid", "thesis_dirichlet", "quantity_skew", IN_ORDER, "feature_noise"]
THESIS = {
    "thesis-table-2-1": {
        "fedavg": [0.6427, 0.4335, 0.6192, 0.3934, 0.5933],
        "fedprox(mu=0.001)": [0.6425, 0.4466, 0.6309, 0.4034, 0.5961],
        "fedprox(mu=0.01)": [0.6356, 0.4505, 0.6494, 0.4435, 0.5979],
        "fedprox(mu=0.1)": [0.6363, 0.4347, 0.6396, 0.4226, 0.5906],
        "fedprox(mu=1)": [0.4443, 0.4034, 0.4238, 0.3437, 0.4375],
    },
    "thesis-table-2-2": {
        "fedavg": [0.616, 0.4328, 0.6246, 0.3818, 0.5834],
        "fednova(normalise=epochs)": [0.6231, 0.427, 0.6456, 0.3552, 0.5749],
        "fednova(normalise=steps)": [],
    },
}


def keep(folder: Path) -> None:
    """Copies what the page needs from a finished study.

    That is each run's top accuracy, and each client's in the last ten rounds.
    """
    name = re.search(
        r"^name: (\S+)", (folder / "study.yaml").read_text(encoding="utf-8"), re.MULTILINE
    )
    assert name
    summary, clients = (pd.read_csv(folder / f"{one}.csv") for one in ("summary", "clients"))
    late = clients[clients["round"] > clients["round"].max() - 10]
    runs = [key for key in KEYS if key in summary]
    parts = late.groupby([*runs, "client"], sort=False)[["train_accuracy", "test_accuracy"]].mean()
    summary[[*runs, "round", "accuracy", "best_accuracy", "status"]].to_csv(
        target(name[1]), index=False
    )
    parts.round(4).to_csv(target(f"{name[1]}-clients"))


def target(name: str) -> Path:
    return DOCS / "results" / f"{name}.csv"


def top(name: str) -> pd.DataFrame:
    """Each run's best global test accuracy: a row per method and split, a column per seed."""
    return pd.read_csv(target(name)).pivot_table(
        "best_accuracy", ["algorithm", "split"], "seed", sort=False
    )


def table(name: str) -> str:
    """Our mean and deviation over the seeds, and the thesis's figures below them."""
    found = top(name)
    lines = ["| | " + " | ".join(COLUMNS.values()) + " |", "|---|" + "---|" * len(COLUMNS)]
    for method, theirs in THESIS[name].items():
        cells = [found.loc[(method, split)] for split in COLUMNS]
        lines.append(
            f"| {method} | "
            + " | ".join(f"{cell.mean():.4f} ± {cell.std():.3f}" for cell in cells)
            + " |"
        )
        known = dict(zip(IN_THESIS, theirs, strict=False))
        pairs = zip(COLUMNS, cells, strict=True)
        texts = [
            f"*{known[s]:.4f}* ({cell.mean() - known[s]:+.3f})" if s in known else ""
            for s, cell in pairs
        ]
        lines += [f"| *thesis* | {' | '.join(texts)} |"] if theirs else []
    return "\n".join(lines)


def verdict(name: str, split: str, better: str, worse: str) -> str:
    """Whether one method's top accuracy is above another's, seed by seed."""
    found = top(name)
    return told(found.loc[(better, split)] - found.loc[(worse, split)])


def told(gain: pd.Series) -> str:
    won = int((gain > 0).sum())
    word = {len(gain): "**confirmed**", 0: "**refuted**"}.get(won, "undecided")
    return f"{word}: {gain.mean():+.4f} ({won} of {len(gain)} seeds)"


def gains_of_clients(name: str, split: str, better: str, worse: str) -> pd.DataFrame:
    """What each client gains in local test accuracy, mean of the last ten rounds: a row per seed."""
    found = pd.read_csv(target(f"{name}-clients"))
    means = (
        found[found["split"] == split]
        .groupby(["algorithm", "seed", "client"])["test_accuracy"]
        .mean()
    )
    return (means[better] - means[worse]).unstack("client")


def each_client(gains: pd.DataFrame) -> str:
    return ", ".join(f"client {k} {gains[k].mean():+.4f}" for k in gains)


def helps_clients(gains: pd.DataFrame) -> str:
    """Whether clients gain on average, seed by seed."""
    return f"{told(gains.mean(axis=1))}; {each_client(gains)}"


def helps_every_client(gains: pd.DataFrame) -> str:
    return f"{'**confirmed**' if (gains.mean() > 0).all() else '**refuted**'}: {each_client(gains)}"


def helps_most(gains: pd.DataFrame, client: int) -> str:
    """Whether this client gains most, seed by seed."""
    lead = gains[client] - gains.drop(columns=client).max(axis=1)
    return f"{told(lead)} ahead of the next client; {each_client(gains)}"


def is_best(name: str, split: str, method: str) -> str:
    """Whether a method is the best of its column: against the best of the others, seed by seed."""
    found = top(name).xs(split, level="split")
    other = found.drop(index=method).mean(axis=1).idxmax()
    return f"{told(found.loc[method] - found.loc[other])} compared with {other}"


def claims() -> str:
    """What the thesis concludes from its tables and figures, and what these runs say."""
    one, two, figure, prox = (
        "thesis-table-2-1",
        "thesis-table-2-2",
        "thesis-figure-2-13",
        "thesis-fedprox",
    )
    nova, small, large = "fednova(normalise=epochs)", "fedprox(mu=0.01)", "fedprox(mu=0.1)"
    labels = gains_of_clients(one, IN_ORDER, small, "fedavg")
    skewed = gains_of_clients(prox, "thesis_dirichlet", large, "fedavg")
    quantity = gains_of_clients(one, "quantity_skew", large, "fedavg")
    rows = {
        "mu = 1 is the worst everywhere": worst_everywhere(one, "fedprox(mu=1)"),
        "IID: FedAvg is the best": is_best(one, "iid", "fedavg"),
        **{
            f"{COLUMNS[split]}: mu = 0.01 is the best": is_best(one, split, small)
            for split in IN_THESIS[1:]
        },
        "labels per party: mu = 0.01 beats FedAvg": verdict(one, IN_ORDER, small, "fedavg"),
        "labels per party: mu = 0.01 helps the client with two labels most": helps_most(labels, 0),
        "label skew, beta 1: mu = 0.1 helps clients' local tests a little": helps_clients(skewed),
        "quantity skew: mu = 0.1 is better than FedAvg for every client": helps_every_client(
            quantity
        ),
        "noise: mu = 0.1 is similar to FedAvg": similar(one, "feature_noise", large, "fedavg"),
        "both label skews hurt most, the others are close to centralised training": ranked(figure),
        "IID, epochs 5, 1, 2: FedNova beats FedAvg": verdict(two, "iid", nova, "fedavg"),
        "label skew: FedNova does not beat FedAvg": verdict(
            two, "thesis_dirichlet", "fedavg", nova
        ),
        "quantity skew: FedNova beats FedAvg": verdict(two, "quantity_skew", nova, "fedavg"),
        "labels per party: FedNova is worse than FedAvg": verdict(two, IN_ORDER, "fedavg", nova),
        "noise: FedNova is worse than FedAvg (in its table)": verdict(
            two, "feature_noise", "fedavg", nova
        ),
    }
    return "\n".join(
        [
            "| the thesis says | these runs say |",
            "|---|---|",
            *(f"| {text} | {found} |" for text, found in rows.items()),
        ]
    )


def similar(name: str, split: str, one: str, other: str) -> str:
    """Whether two methods are within a hundredth of each other."""
    gain = (top(name).loc[(one, split)] - top(name).loc[(other, split)]).mean()
    return f"{'**confirmed**' if abs(gain) < 0.01 else '**refuted**'}: {gain:+.4f}"


def worst_everywhere(name: str, method: str) -> str:
    means = top(name).mean(axis=1).unstack("split")
    gaps = means.drop(index=method).min() - means.loc[method]
    word = "**confirmed**" if (gaps > 0).all() else "**refuted**"
    return f"{word}: {gaps.min():.3f} to {gaps.max():.3f} below the next method"


def ranked(name: str) -> str:
    means = top(name).mean(axis=1).sort_values(ascending=False)
    names = {**COLUMNS, "labels_per_party": "labels per party", "all data": "centralised"}
    shown = ", ".join(f"{names[split]} {value:.4f}" for (_, split), value in means.items())
    last = {split for _, split in means.index[-2:]}
    return f"{'**confirmed**' if last == {'thesis_dirichlet', 'labels_per_party'} else '**refuted**'}: {shown}"


def page(text: str) -> str:
    """The page with its tables as they follow from docs/results/."""
    parts = {
        "table-2-1": table("thesis-table-2-1"),
        "table-2-2": table("thesis-table-2-2"),
        "claims": claims(),
    }
    for name, made in parts.items():
        pattern = rf"(<!-- {name} -->\n).*?(<!-- end -->)"
        text = re.sub(
            pattern, lambda found, made=made: f"{found[1]}{made}\n{found[2]}", text, flags=re.DOTALL
        )
    return text


def main() -> None:
    for folder in sys.argv[1:]:
        keep(Path(folder))
    path = DOCS / "reproduction.md"
    path.write_text(page(path.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
