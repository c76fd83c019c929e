"""What the hardware is: architectures, data types and their instructions, measured devices. Data; knows no plan."""
