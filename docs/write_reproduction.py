"""Writes the tables of docs/reproduction.md, and docs/results/ from folders of finished studies.

Usage: python docs/write_reproduction.py [folder of a finished study ...]
"""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
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

    That is each run's top accuracy, and each client's accuracies in the last ten rounds.
    """
    settings = (folder / "study.yaml").read_text(encoding="utf-8")
    name = re.search(r"^name: (\S+)", settings, re.MULTILINE)
    assert name
    summary = pd.read_csv(folder / "summary.csv")
    clients = pd.read_csv(folder / "clients.csv")
    keys = [key for key in KEYS if key in summary]
    runs = summary[[*keys, "round", "accuracy", "best_accuracy", "status"]]
    runs.to_csv(target(name[1]), index=False)
    late = clients[clients["round"] > clients["round"].max() - 10]
    by_client = late.groupby([*keys, "client"], sort=False)
    means = by_client[["train_accuracy", "test_accuracy"]].mean()
    means.round(4).to_csv(target(f"{name[1]}-clients"))


def target(name: str) -> Path:
    return DOCS / "results" / f"{name}.csv"


def top(name: str) -> pd.DataFrame:
    """Each run's best global test accuracy: a row per method and split, a column per seed."""
    runs = pd.read_csv(target(name))
    return runs.pivot_table("best_accuracy", ["algorithm", "split"], "seed", sort=False)


def table(name: str) -> str:
    """Our mean and deviation over the seeds, and the thesis's figures below them."""
    scores = top(name)
    heading = "| " + markdown_row(list(COLUMNS.values()))  # nothing above the methods
    lines = [heading, "|---|" + "---|" * len(COLUMNS)]
    for method, figures in THESIS[name].items():
        ours = {split: scores.loc[(method, split)] for split in COLUMNS}
        cells = [f"{seeds.mean():.4f} ± {seeds.std():.3f}" for seeds in ours.values()]
        lines.append(markdown_row([method, *cells]))
        if figures:
            thesis = dict(zip(IN_THESIS, figures, strict=True))
            lines.append(markdown_row(["*thesis*", *thesis_cells(thesis, ours)]))
    return "\n".join(lines)


def thesis_cells(thesis: dict[str, float], ours: dict[str, pd.Series]) -> list[str]:
    """The thesis's figure for each split and how far ours differs; empty where it has none."""
    cells = []
    for split, seeds in ours.items():
        if split in thesis:
            figure = thesis[split]
            cells.append(f"*{figure:.4f}* ({seeds.mean() - figure:+.3f})")
        else:
            cells.append("")
    return cells


def markdown_row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def verdict(name: str, split: str, better: str, worse: str) -> str:
    """Whether one method's top accuracy is above another's, seed by seed."""
    scores = top(name)
    return judged(scores.loc[(better, split)] - scores.loc[(worse, split)])


def judged(gain: pd.Series) -> str:
    """The verdict on a gain, which each seed may confirm or refute."""
    won = int((gain > 0).sum())
    if won == len(gain):
        word = "**confirmed**"
    elif won == 0:
        word = "**refuted**"
    else:
        word = "undecided"
    return f"{word}: {gain.mean():+.4f} ({won} of {len(gain)} seeds)"


def confirmed(is_true: bool) -> str:
    return "**confirmed**" if is_true else "**refuted**"


def gains_of_clients(name: str, split: str, better: str, worse: str) -> pd.DataFrame:
    """Each client's gain in local test accuracy, mean of the last ten rounds: a row per seed."""
    clients = pd.read_csv(target(f"{name}-clients"))
    of_split = clients[clients["split"] == split]
    means = of_split.groupby(["algorithm", "seed", "client"])["test_accuracy"].mean()
    return (means[better] - means[worse]).unstack("client")


def each_client(gains: pd.DataFrame) -> str:
    return ", ".join(f"client {k} {gains[k].mean():+.4f}" for k in gains)


def helps_clients(gains: pd.DataFrame) -> str:
    """Whether clients gain on average, seed by seed."""
    return f"{judged(gains.mean(axis=1))}; {each_client(gains)}"


def helps_every_client(gains: pd.DataFrame) -> str:
    every_client = bool((gains.mean() > 0).all())
    return f"{confirmed(every_client)}: {each_client(gains)}"


def helps_most(gains: pd.DataFrame, client: int) -> str:
    """Whether this client gains most, seed by seed."""
    lead = gains[client] - gains.drop(columns=client).max(axis=1)
    return f"{judged(lead)} ahead of the next client; {each_client(gains)}"


def is_best(name: str, split: str, method: str) -> str:
    """Whether a method is the best of its column: against the best of the others, seed by seed."""
    scores = top(name).xs(split, level="split")
    rival = scores.drop(index=method).mean(axis=1).idxmax()
    return f"{judged(scores.loc[method] - scores.loc[rival])} compared with {rival}"


def claims() -> str:
    """What the thesis concludes from its tables and figures, and what these runs say."""
    skews = "both label skews hurt most, the others are close to centralised training"
    verdicts = {
        **claims_on_fedprox(),
        skews: ranked("thesis-figure-2-13"),
        **claims_on_fednova(),
    }
    rows = [markdown_row([claim, verdict]) for claim, verdict in verdicts.items()]
    return "\n".join(["| the thesis says | these runs say |", "|---|---|", *rows])


def claims_on_fedprox() -> dict[str, str]:
    name = "thesis-table-2-1"
    small = "fedprox(mu=0.01)"
    large = "fedprox(mu=0.1)"
    labels = gains_of_clients(name, IN_ORDER, small, "fedavg")
    skewed = gains_of_clients("thesis-fedprox", "thesis_dirichlet", large, "fedavg")
    quantity = gains_of_clients(name, "quantity_skew", large, "fedavg")
    every_client = "quantity skew: mu = 0.1 is better than FedAvg for every client"
    verdicts = {
        "mu = 1 is the worst everywhere": worst_everywhere(name, "fedprox(mu=1)"),
        "IID: FedAvg is the best": is_best(name, "iid", "fedavg"),
    }
    for split in IN_THESIS[1:]:
        verdicts[f"{COLUMNS[split]}: mu = 0.01 is the best"] = is_best(name, split, small)
    return {
        **verdicts,
        "labels per party: mu = 0.01 beats FedAvg": verdict(name, IN_ORDER, small, "fedavg"),
        "labels per party: mu = 0.01 helps the client with two labels most": helps_most(labels, 0),
        "label skew, beta 1: mu = 0.1 helps clients' local tests a little": helps_clients(skewed),
        every_client: helps_every_client(quantity),
        "noise: mu = 0.1 is similar to FedAvg": similar(name, "feature_noise", large, "fedavg"),
    }


def claims_on_fednova() -> dict[str, str]:
    name = "thesis-table-2-2"
    nova = "fednova(normalise=epochs)"

    def gains(split: str) -> str:
        return verdict(name, split, better=nova, worse="fedavg")

    def loses(split: str) -> str:
        return verdict(name, split, better="fedavg", worse=nova)

    return {
        "IID, epochs 5, 1, 2: FedNova beats FedAvg": gains("iid"),
        "label skew: FedNova does not beat FedAvg": loses("thesis_dirichlet"),
        "quantity skew: FedNova beats FedAvg": gains("quantity_skew"),
        "labels per party: FedNova is worse than FedAvg": loses(IN_ORDER),
        "noise: FedNova is worse than FedAvg (in its table)": loses("feature_noise"),
    }


def similar(name: str, split: str, first: str, second: str) -> str:
    """Whether two methods are within a hundredth of each other."""
    scores = top(name)
    gain = (scores.loc[(first, split)] - scores.loc[(second, split)]).mean()
    return f"{confirmed(abs(gain) < 0.01)}: {gain:+.4f}"


def worst_everywhere(name: str, method: str) -> str:
    means = top(name).mean(axis=1).unstack("split")
    gaps = means.drop(index=method).min() - means.loc[method]
    everywhere = bool((gaps > 0).all())
    return f"{confirmed(everywhere)}: {gaps.min():.3f} to {gaps.max():.3f} below the next method"


def ranked(name: str) -> str:
    """All splits by their accuracy, and whether the two label skews are the last."""
    means = top(name).mean(axis=1).sort_values(ascending=False)
    names = {**COLUMNS, "labels_per_party": "labels per party", "all data": "centralised"}
    shown = ", ".join(f"{names[split]} {value:.4f}" for (_, split), value in means.items())
    last = {split for _, split in means.index[-2:]}
    return f"{confirmed(last == {'thesis_dirichlet', 'labels_per_party'})}: {shown}"


def page(text: str) -> str:
    """The page with its tables as they follow from docs/results/."""
    tables = {
        "table-2-1": table("thesis-table-2-1"),
        "table-2-2": table("thesis-table-2-2"),
        "claims": claims(),
    }
    for name, lines in tables.items():
        begin = f"<!-- {name} -->\n"
        end = "<!-- end -->"
        before, rest = text.split(begin)
        after = rest.split(end, maxsplit=1)[1]
        text = f"{before}{begin}{lines}\n{end}{after}"
    return text


def main() -> None:
    for folder in sys.argv[1:]:
        keep(Path(folder))
    path = DOCS / "reproduction.md"
    path.write_text(page(path.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
