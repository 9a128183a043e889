"""Who writes: the sampler protocols, the model catalogue, and the engines behind them."""
