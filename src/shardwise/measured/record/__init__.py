"""Records of a training run: where each rank's time went, step by step, as JSON lines.

    from shardwise.measured.record import Recorder
    for batch in Recorder("runs/a").steps(loader):  # any PyTorch loop

    trainer.add_callback(TrainerRecorder("runs/a"))                  # Hugging Face
    Trainer(callbacks=[LightningRecorder("runs/a")])                 # Lightning

Nothing here needs torch, nor either of the two programs; `shardwise watch` and `shardwise why` read what is written.
"""

from shardwise.measured.record.callbacks import LightningRecorder, TrainerRecorder
from shardwise.measured.record.loop import Recorder

__all__ = ["LightningRecorder", "Recorder", "TrainerRecorder"]
