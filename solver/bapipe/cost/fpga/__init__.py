"""What layers cost on an FPGA, from their shapes: cycles of its arrays, off-chip traffic by what stays on the chip,
energy.

A phase of a layer (forward, input gradient, weight gradient) takes the larger of its compute and its traffic. Weights,
gradients and stashes that stay on the chip cost no traffic; the others are streamed for each micro-batch.
"""
