"""torch, where it is needed and may be missing."""


def torch_on_one_thread() -> None:
    """Rows are short here: threads would wait for each other longer than they work."""
    try:
        import torch
    except ImportError:
        raise ValueError("sync: this needs torch; install shardwise[run]") from None
    torch.set_num_threads(1)
