"""Train the network of fashion_mnist.py with PyTorch, on one device.

python fashion_mnist_torch.py --epochs 3
"""

import argparse
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from course_lib import data

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--epochs", type=int, default=3)
parser.add_argument("--batch-size", type=int, default=64, help="images in one step")
parser.add_argument("--lr", type=float, default=0.05, help="learning rate")
parser.add_argument("--seed", type=int, default=1, help="of the first weights; 0: another one at every start")
parser.add_argument("--checkpoint", default="fashion_mnist.pt", help="where the trained network goes")
args = parser.parse_args()

device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
torch.manual_seed(args.seed) if args.seed else torch.seed()

fashion = data.load("fashion_mnist")
held_back = min(10_000, len(fashion.x_train) // 5)  # for validation; the test images stay closed
training, validation = (
    TensorDataset(torch.from_numpy(fashion.x_train[part]).permute(0, 3, 1, 2), torch.from_numpy(fashion.y_train[part]))
    for part in (slice(None, -held_back), slice(-held_back, None))
)
batches = DataLoader(training, args.batch_size, shuffle=True, drop_last=True)

model = nn.Sequential(
    nn.Conv2d(1, 16, 3, padding=1),
    nn.ReLU(),
    nn.MaxPool2d(2),
    nn.Conv2d(16, 32, 3, padding=1),
    nn.ReLU(),
    nn.MaxPool2d(2),
    nn.Flatten(),
    nn.Linear(32 * 7 * 7, 64),
    nn.ReLU(),
    nn.Linear(64, 10),
).to(device)
optimizer = torch.optim.SGD(model.parameters(), args.lr, momentum=0.9)

print(f"Training on {len(training):,} images of {fashion.name}, {args.batch_size} a step")
start = time.time()
for epoch in range(args.epochs):
    model.train()
    for images, labels in batches:
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(images.to(device) / 255), labels.to(device))
        loss.backward()
        optimizer.step()
    model.eval()
    with torch.inference_mode():
        right = [
            (model(images.to(device) / 255).argmax(1) == labels.to(device)).float().mean()
            for images, labels in DataLoader(validation, args.batch_size)
        ]
    print(f"epoch {epoch + 1}: loss {loss:.4f}, validation accuracy {torch.stack(right).mean():.3f}")
print(f"{args.epochs} epochs in {time.time() - start:.1f} s")
torch.save(model.state_dict(), args.checkpoint)
