"""The simulated SQS and EventBridge.

queues        queues: visibility timeouts, redelivery, dead-letter queues
sqs           the operations of SQS
eventbridge   buses, rules, and how an event reaches the queues they name
events        the operations of EventBridge
"""
