"""One file per way to divide data among parties: by rows, and by columns in `columns.py`."""
