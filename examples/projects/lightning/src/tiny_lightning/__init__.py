"""Fit a line by a Lightning module, and print its loss."""

import lightning
import torch
from torch.utils.data import DataLoader, TensorDataset


class Line(lightning.LightningModule):
    """One linear layer."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(1, 1)

    def training_step(self, batch: list[torch.Tensor], _: int) -> torch.Tensor:
        x, y = batch
        loss = torch.nn.functional.mse_loss(self.layer(x), y)
        self.log("loss", loss)
        return loss

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.1)


def main() -> None:
    lightning.seed_everything(0, verbose=False)
    x = torch.linspace(-1, 1, 64).unsqueeze(1)
    data = DataLoader(TensorDataset(x, 3 * x + 1), batch_size=16, shuffle=True)
    trainer = lightning.Trainer(
        max_epochs=20, logger=False, enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False
    )
    trainer.fit(Line(), data)
    print(f"loss {trainer.callback_metrics['loss']:.4f}")
