// The global model on the test set, round by round.

charts["chart-score"] = (box) => {
  drawCurves(box, "round", "score", "round", `global test ${data.score_name}`);
};
charts["chart-loss"] = (box) => {
  drawCurves(box, "round", "loss", "round", "global test loss");
};
