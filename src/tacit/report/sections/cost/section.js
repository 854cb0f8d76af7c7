// The score against what was sent or how long was computed.

charts["chart-cost"] = (box) => {
  const label = `global test ${data.score_name}`;
  if (chosen.cost === "time") {
    drawCurves(box, "time", "score", "seconds of computing", label);
  } else {
    drawCurves(box, "mb", "score", "megabytes sent by all clients", label);
  }
};

selects["choose-cost"] = () => [["mb", "megabytes sent"], ["time", "seconds of computing"]];
