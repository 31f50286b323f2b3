"""USB's quick start with one import and one changed name: FixMatch + UPCSC, tested on a domain that it has not seen.

    python examples/usb_trainer.py [iterations]

Like USB itself it needs a GPU, where the default of 3000 iterations is a matter of minutes. Fewer than a thousand tell
nothing: the batch norm of USB's wide ResNets has a momentum of 0.001. The images are generated, nothing is downloaded.
"""

import sys

from semilearn import Trainer, get_algorithm, get_config, get_data_loader, get_net_builder

import semilearn_ext.usb

# Step 1: define and create the config
iterations = int(sys.argv[1]) if len(sys.argv) > 1 else 3000
config = get_config(
    {
        "algorithm": "fixmatch_upcsc",  # USB's own FixMatch is "fixmatch"
        "net": "wrn_28_2",
        "epoch": 3,
        "num_train_iter": iterations,
        "num_eval_iter": iterations // 3,
        "optim": "SGD",
        "lr": 0.03,
        "batch_size": 48,
        "eval_batch_size": 256,
        "hard_label": True,
        "uratio": 1,
        "dataset": "none",  # not one of USB's
        "save_name": "usb_trainer",
        "gpu": 0,
        "world_size": 1,
        "distributed": False,
    }
)

# Step 2: create the datasets: train on three domains, with 10 labels per class and domain; test on the fourth
datasets = semilearn_ext.usb.get_datasets(config.algorithm, "street", dataset="digits_mini", flip=False)
datasets.configure(config)
train_lb_loader = get_data_loader(config, datasets["train_lb"], config.batch_size)
train_ulb_loader = get_data_loader(config, datasets["train_ulb"], config.batch_size * config.uratio)
eval_loader = get_data_loader(config, datasets["eval"], config.eval_batch_size, data_sampler=None, drop_last=False)
test_loader = get_data_loader(config, datasets["test"], config.eval_batch_size, data_sampler=None, drop_last=False)

# Step 3: create the algorithm
algorithm = get_algorithm(config, get_net_builder(config.net, from_name=False), tb_log=None, logger=None)

# Step 4: train
trainer = Trainer(config, algorithm)
trainer.fit(train_lb_loader, train_ulb_loader, eval_loader)

# Step 5: evaluate on the target domain
print(f"target domain: {trainer.evaluate(test_loader)['acc']:.1%}")
