"""The same IQL update in plain PyTorch, to compare speed with: eager, all sixteen slots.

Nothing else uses it, and it is imported only if PyTorch is installed.
"""

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch.nn.functional import logsigmoid, one_hot

from evenline.control.state import MAX_SLOTS, PREFIX, SLOT
from evenline.learn.data import REWARD_SCALE
from evenline.learn.updates import CRITIC_BATCH, EXPECTILE, RATE, TARGET_RATE
from evenline.replay.store import Store

ROWS = 20_000  # rows of the replay, kept as states


def mlp(*widths: int) -> Any:
    """Linear layers, each followed by ReLU."""
    layers: list[Any] = []
    for a, b in pairwise(widths):
        layers += [torch.nn.Linear(a, b), torch.nn.ReLU()]
    return torch.nn.Sequential(*layers)


class Encoder(torch.nn.Module):  # type: ignore[misc, unused-ignore]
    """Slots, five pooled views, fusion."""

    def __init__(self, services: int) -> None:
        super().__init__()
        self.services = services
        self.slot = mlp(SLOT - 1 + services + 3, 128, 128)
        self.fuse = mlp(PREFIX + 5 * 128, 256, 256)

    def forward(self, state: Any) -> Any:
        """Features of a batch of canonical states."""
        slots = state[:, PREFIX:].view(-1, MAX_SLOTS, SLOT)
        size, token = (state[:, 1:2] * MAX_SLOTS).round(), (state[:, 2:3] * MAX_SLOTS).round()
        k = torch.arange(MAX_SLOTS, device=state.device)[None]
        active = (k < size).float()
        service = one_hot(slots[..., 1].long(), self.services).float()
        now, before, after = (r.float() * active for r in (k == token, k < token, k > token))
        place = ((k - token) / MAX_SLOTS)[..., None]
        parts = [slots[..., :1], slots[..., 2:], service, now[..., None], before[..., None], place]
        h = self.slot(torch.cat(parts, -1)) * active[..., None]

        def mean(mask: Any) -> Any:
            return (h * mask[..., None]).sum(1) / mask.sum(1, keepdim=True).clamp(min=1)

        views = [mean(now), mean(active), h.max(1).values, mean(before), mean(after)]
        return self.fuse(torch.cat([state[:, :PREFIX], *views], -1))


def head(extra: int, outputs: int) -> Any:
    """Two hidden layers and an output layer."""
    return torch.nn.Sequential(mlp(256 + extra, 256, 256), torch.nn.Linear(256, outputs))


def both(critic: Any, state: Any, action: Any) -> Any:
    """The two critics of a state and an action."""
    x = torch.cat([critic[0](state), action[:, None]], -1)
    return critic[1](x)[:, 0], critic[2](x)[:, 0]


def log_density(out: Any, action: Any) -> Any:
    """Log density of the hurdle policy."""
    gate, mean, log_std = out[:, 0], out[:, 1], out[:, 2].clamp(-5, 2)
    none = action == -1
    inside = torch.where(none, torch.zeros_like(action), action).clamp(-1 + 1e-6, 1 - 1e-6)
    z = torch.log1p(inside) - torch.log1p(-inside)
    normal = -0.5 * ((z - mean) / log_std.exp()) ** 2 - log_std - 0.919
    held = logsigmoid(gate) + normal - torch.log((1 - inside**2) / 2)
    return torch.where(none, logsigmoid(-gate), held)


def eager_updates(services: int, store: Store, device: str) -> Callable[[int], None]:
    """A function that makes the given number of updates."""

    def critic() -> Any:
        return torch.nn.ModuleList([Encoder(services), head(1, 1), head(1, 1)]).to(device)

    q, target = critic(), critic()
    value = torch.nn.Sequential(Encoder(services), head(0, 1)).to(device)
    actor = torch.nn.Sequential(Encoder(services), head(0, 3)).to(device)
    optimisers = [torch.optim.Adam(m.parameters(), lr=RATE) for m in (q, value, actor)]
    tensors = _transitions(store, device)

    def losses() -> tuple[Any, Any, Any]:
        pick = torch.randint(ROWS, (CRITIC_BATCH,), device=device)
        s, a, r, after, goes_on = (tensor[pick] for tensor in tensors)
        with torch.no_grad():
            best = torch.minimum(*both(target, s, a))
            goal = r + goes_on * value(after)[:, 0]
        u = best - value(s)[:, 0]
        one, two = both(q, s, a)
        weight = (3 * u.detach()).clamp(max=4.605).exp()
        return (
            ((one - goal) ** 2).mean() + ((two - goal) ** 2).mean(),
            (torch.where(u < 0, 1 - EXPECTILE, EXPECTILE) * u**2).mean(),
            -(weight * log_density(actor(s), a)).mean(),
        )

    def updates(count: int) -> None:
        for _ in range(count):
            for optimiser, loss in zip(optimisers, losses(), strict=True):
                optimiser.zero_grad()
                loss.backward()
                optimiser.step()
            with torch.no_grad():
                for new, old in zip(q.parameters(), target.parameters(), strict=True):
                    old.lerp_(new, TARGET_RATE)
        if device == "cuda":
            torch.cuda.synchronize()

    updates(2)  # includes the setup on first use
    return updates


def _transitions(store: Store, device: str) -> list[Any]:
    rows = np.random.Generator(np.random.PCG64(2)).integers(0, len(store) - 1, ROWS)
    arrays = (
        store.canonical(rows),
        store.action[rows],
        REWARD_SCALE * store.reward[rows],
        store.canonical(rows + 1),
        (1.0 - store.terminal[rows]).astype(np.float32),
    )
    return [torch.from_numpy(np.ascontiguousarray(array)).float().to(device) for array in arrays]
