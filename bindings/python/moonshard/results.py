"""Run folders as plain dicts, or as a table of pandas."""
import json
from pathlib import Path


def _points(folder):
    folder = Path(folder)
    records = sorted((folder / "points").glob("*/result.json"))
    if not records and (folder / "result.json").is_file():  # of one point
        records = [folder / "result.json"]
    if not records:
        raise FileNotFoundError(f"moonshard: expected a run folder with points/*/result.json, got {folder}, which has none")
    order = {}
    index = folder / "index.csv"
    if index.is_file():
        with open(index, encoding="utf-8") as file:
            order = {line.split(",", 1)[0]: number for number, line in enumerate(file)}
    records.sort(key=lambda path: (order.get(path.parent.name, len(order)), path.parent.name))
    return records


def load(*folders):
    """The records of all points, as they were written, in the sweep's order.

    docs/records.md explains their fields; each also has `folder`, where it lies."""
    points = []
    for folder in folders:
        for path in _points(folder):
            with open(path, encoding="utf-8") as file:
                point = json.load(file)
            if not isinstance(point, dict) or "status" not in point:
                raise ValueError(f"moonshard: expected a record with a status, got {path}")
            point["folder"] = str(path.parent)
            points.append(point)
    return points


def rows(*folders, options=None):
    """One flat dict per point: id, status, options and metrics.

    Of options only those that differ between points, or those named."""
    points = load(*folders)
    known = {}
    for point in points:
        for key, value in point.get("options", {}).items():
            known.setdefault(key, set()).add(json.dumps(value))
    names = options if options is not None else [key for key, values in known.items() if len(values) > 1]
    missing = [name for name in names if name not in known]
    if missing:
        raise KeyError(f"moonshard: expected options of these points, got {', '.join(missing)}; known: {', '.join(sorted(known))}")
    table = []
    for point in points:
        row = {"id": point.get("id"), "status": point["status"]}
        row.update({name: point.get("options", {}).get(name) for name in names})
        row.update(point.get("metrics", {}))
        table.append(row)
    return table


def frame(*folders, options=None):
    """rows() as a pandas.DataFrame; needs pandas."""
    import pandas

    return pandas.DataFrame(rows(*folders, options=options))
