"""`fretta.adapt` under Lightning's Trainer.predict.

pip install lightning
python lightning_loop.py
"""

from __future__ import annotations

from typing import Any

import torch
from plain_loop import foggy_digits
from torch import Tensor, nn

import fretta


def main() -> None:
    try:
        import lightning
    except ModuleNotFoundError:
        raise SystemExit("this example needs Lightning: pip install lightning") from None

    class Adapting(lightning.LightningModule):
        """Your module, with the adapter in front of its network."""

        def __init__(self, model: nn.Module) -> None:
            super().__init__()
            self.adapter = fretta.adapt(model, guard="rollback")

        def predict_step(self, batch: tuple[Tensor, ...], index: int) -> Tensor:
            x, y = batch
            logits: Tensor = self.adapter(x)  # learns too; eval() does not switch that off
            return (logits.argmax(1) == y).float()

    model, loader = foggy_digits()
    trainer = lightning.Trainer(
        inference_mode=False,  # in inference mode nothing can be learned
        accelerator="cpu",
        devices=1,  # one stream, one process
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    hits: Any = trainer.predict(Adapting(model), loader)
    print(f"adapting   {torch.cat(hits).mean():.1%}")


if __name__ == "__main__":
    main()
