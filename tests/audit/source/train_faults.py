# Only training runs this; see opencl.c for how to read the marks.
import torch


def train_one_epoch(model, criterion, data_loader, optimizer, device):
    for samples, targets in data_loader:
        samples = samples.to(device)  # expect: upload necessary training
        targets = [t.to(device) for t in targets]  # expect: transfer_in_loop medium training
        loss = criterion(model(samples), targets)
        loss.backward()
        optimizer.step()
        print(loss.item())  # expect: download necessary training
        for k in loss:
            log(k.item())  # expect: scalar_read medium training


def evaluate(model, data_loader):
    for samples in data_loader:
        for row in model(samples):
            log(row.item())  # expect: scalar_read critical
