"""A shuffling loader that can be resumed inside an epoch, by Lightning's ``state_dict`` interface
for loaders.
"""

import torch


class StatefulLoader:
    """Yields ready-made batches in another order each epoch, and goes on where its
    state was saved.
    """

    def __init__(self, batches):
        self.batches = batches
        self.sampler = self
        self.epoch = 0
        self.position = 0
        self._resumed = False

    def set_epoch(self, epoch):
        self.epoch = epoch

    def __len__(self):
        return len(self.batches)

    def __iter__(self):
        if not self._resumed:
            self.position = 0
        return self._rest_of_the_epoch()

    def _rest_of_the_epoch(self):
        self._resumed = (
            False  # only now: Lightning calls iter() once or twice before it asks for a batch
        )
        order = torch.randperm(
            len(self.batches), generator=torch.Generator().manual_seed(self.epoch)
        ).tolist()
        for index in order[self.position :]:
            self.position = (self.position + 1) % len(order)
            yield self.batches[index]

    def state_dict(self):
        return {"position": self.position}

    def load_state_dict(self, state_dict):
        self.position = state_dict["position"]
        self._resumed = True
