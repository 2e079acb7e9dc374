"""tend env: Python asks the system for the address of a name below localhost, and not every system knows
that it is this machine (RFC 6761). PYTHONPATH names the directory of this file, so that each start of Python runs it."""


def _tend():
    import os
    import socket
    import sys
    from importlib.machinery import PathFinder
    from importlib.util import module_from_spec

    ask = socket.getaddrinfo

    def getaddrinfo(host, *args, **kwargs):
        name = host.decode("ascii", "replace") if isinstance(host, bytes) else host
        if isinstance(name, str) and name.lower().rstrip(".").endswith(".localhost"):
            host = "127.0.0.1"
        return ask(host, *args, **kwargs)

    socket.getaddrinfo = getaddrinfo

    # The module of this name that would have been run without us.
    here = os.path.dirname(os.path.abspath(__file__))
    spec = PathFinder.find_spec("sitecustomize", [p for p in sys.path if os.path.abspath(p or ".") != here])
    if spec is not None and spec.loader is not None:
        module = module_from_spec(spec)
        sys.modules["sitecustomize"] = module
        spec.loader.exec_module(module)


_tend()
del _tend
