"""One model of many: each file here is one method."""
