"""What was decided and done, remembered: records, the ring, the log's chain and notifications. Pure.

record  ─► ring (in memory, asked by name)        drafts: records from plans, choices and commands
        ─► chain (numbered and hashed for a log)  verdicts: which changes of a verdict are worth a record
        ─► filters, messages (notifications)      telling: a record as a line and as a sentence
"""
