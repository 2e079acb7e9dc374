"""What a result becomes: the bundle of MIME types that IPython makes of a value, by the names of the protocol."""
import base64
import json

from IPython.core.formatters import BaseFormatter
from tend_cells import LIMIT, named
from traitlets import ObjectName, Unicode


class DataFormatter(BaseFormatter):
    format_type = Unicode("e2b/data")
    print_method = ObjectName("_repr_e2b_data_")
    _return_type = dict


class ChartFormatter(BaseFormatter):
    format_type = Unicode("e2b/chart")
    print_method = ObjectName("_repr_e2b_chart_")
    _return_type = dict


def register(formatters):
    """Adds data of DataFrames, JSON of lists and dicts, and charts, which figures have as a method."""
    formatters["text/plain"].max_seq_length = 0
    for kind in (DataFormatter, ChartFormatter):
        formatter = kind(parent=formatters["text/plain"].parent)
        formatters[formatter.format_type] = formatter
    for module in ("pandas", "pandas.core.frame"):  # of pandas 3, and before
        formatters["e2b/data"].for_type_by_name(module, "DataFrame", frame)
    for kind in (dict, list):
        formatters["application/json"].for_type(kind, plain)


def plain(value):
    try:
        import orjson

        return orjson.loads(orjson.dumps(value, option=orjson.OPT_SERIALIZE_NUMPY | orjson.OPT_NON_STR_KEYS))
    except Exception:  # a value that JSON has not: the text says what it is
        return None


def frame(df):
    def column(values):
        return [v.isoformat() if hasattr(v, "isoformat") else v for v in values.tolist()]

    return {str(name): column(df.iloc[:, i]) for i, name in enumerate(df.columns)}


def chart(figure):
    try:
        from e2b_charts import chart_figure_to_dict

        return chart_figure_to_dict(figure) or {}
    except Exception:
        return {}


def unserialisable(value):
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if hasattr(value, "tolist"):
        return value.tolist()
    return str(value)


def result(bundle, main):
    """The event of a bundle, as JSON, and what was left out of it: a line for stderr, or none."""
    event = named(bundle, main)
    left_out = []
    encoded = encode(event)
    while len(encoded) > LIMIT:
        sizes = {k: len(encode(v)) for k, v in event.items()}
        biggest = max(sizes, key=sizes.get)
        left_out.append(f"{biggest} ({sizes[biggest] >> 20} MiB)")
        event[biggest] = {} if biggest == "extra" else f"<left out: {sizes[biggest]} bytes>" if biggest == "text" else None
        encoded = encode({k: v for k, v in event.items() if v is not None})
    if not left_out:
        return encoded, None
    return encoded, f"a result is larger than {LIMIT >> 20} MiB; left out of it: {', '.join(left_out)}. Write it to a file.\n"


def encode(value):
    """JSON, which has no NaN: the protocol's clients would not read it."""
    try:
        return json.dumps(value, default=unserialisable, allow_nan=False)
    except ValueError:
        return json.dumps(finite(value), default=unserialisable)


def finite(value):
    if isinstance(value, float):
        return value if value - value == 0 else None
    if isinstance(value, dict):
        return {str(k): finite(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [finite(v) for v in value]
    return finite(value.tolist()) if hasattr(value, "tolist") else value
