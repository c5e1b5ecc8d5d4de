"""The paper's networks compared with recordings of the ventral stream and with people: Table 3."""
