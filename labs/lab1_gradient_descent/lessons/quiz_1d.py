"""The questions of notebook 1d's quiz."""

from __future__ import annotations

from labs.lab1_gradient_descent.lessons.quiz import Choice, Question, Quiz

DATA_AND_MODEL_PARALLELISM = Quiz(
    Question(
        "You train with data parallelism. What do the devices send each other in a step?",
        (
            Choice("Their images", "Each device reads its own images and keeps them; no other device needs them."),
            Choice(
                "Their gradients",
                "Each has the gradient of its own images. Averaged, they are the gradient of the whole batch.",
                True,
            ),
            Choice(
                "Their activations",
                "That is model parallelism. Here each device computes all layers, so its activations stay at home.",
            ),
            Choice(
                "Their weights",
                "All started from the same weights and make the same update: the weights agree without being sent.",
            ),
        ),
    ),
    Question(
        "A network does not fit into one device's memory, not even with a batch of one image. What helps?",
        (
            Choice(
                "Data parallelism on more devices",
                "Each device would still hold the whole network. More devices divide the images, not the weights.",
            ),
            Choice("A smaller batch", "It saves activations, but one image is the least there is."),
            Choice(
                "Model parallelism",
                "Each device holds only some of the layers, with their weights, state and activations.",
                True,
            ),
        ),
    ),
    Question(
        "You double the number of devices with data parallelism and keep the batch of the whole step. "
        "What does each device send in the all-reduce?",
        (
            Choice(
                "Half as much", "Each has half as many images, but the gradient has one number for each weight, always."
            ),
            Choice(
                "About as much as before",
                "2 (N − 1)/N of the gradients: from 4 to 8 devices this grows from 1.5 to 1.75, and never above 2.",
                True,
            ),
            Choice(
                "Twice as much",
                "The bytes over all wires double. Each device has its own wire, and sends at most twice the gradients.",
            ),
        ),
    ),
    Question(
        "You double the batch of the whole step. What happens to the bytes on the wires?",
        (
            Choice(
                "Both ways of sharing send twice as much",
                "With data parallelism the gradients are as many as the weights, however many images they were summed "
                "over.",
            ),
            Choice(
                "Only model parallelism sends twice as much",
                "Its activations are per image. That is why data parallelism wins at large batches.",
                True,
            ),
            Choice(
                "Only data parallelism sends twice as much",
                "It is the other way round: gradients are per weight, activations are per image.",
            ),
        ),
    ),
    Question(
        "ResNet-50 with a batch of 256 images on one device: what takes most of the memory?",
        (
            Choice("The weights", "25.6 million numbers are 102 MB. Look at the stacked bar again."),
            Choice(
                "The gradients and the optimizer's state",
                "Each takes as much as the weights, with Adam twice as much: some 300 MB, at any batch size.",
            ),
            Choice(
                "The activations",
                "About 80 MB an image: more than 98 percent of the 21 GB. The backward pass needs them again.",
                True,
            ),
            Choice("The images", "150,528 numbers each: less than one percent of what the layers make of them."),
        ),
    ),
    Question(
        "A step on four devices that hold a quarter of the layers each, one batch after the other. How much faster "
        "than one device that could hold everything?",
        (
            Choice(
                "Four times",
                "Layer two waits for layer one: while one device computes, three wait. Splitting the batch into "
                "small pieces that follow each other would keep them busy (a pipeline: 7b).",
            ),
            Choice(
                "Not faster",
                "The layers still run one after the other, and now there are transports between them. One gains "
                "memory.",
                True,
            ),
            Choice("Twice", "Not even that: at any moment only one of the four computes."),
        ),
    ),
    Question(
        "Why do all devices hold the same weights after a data-parallel step?",
        (
            Choice(
                "The weights are averaged in each step",
                "They could be, but they are not: only gradients are exchanged.",
            ),
            Choice(
                "They start from the same weights and apply the same averaged gradient",
                "Both are needed. Without equal weights at the start they stay as far apart as they were; leave one "
                "gradient out of the average, and from then on they drift apart.",
                True,
            ),
            Choice(
                "They saw the same images",
                "They saw different ones. The averaged gradient is what they have in common.",
            ),
        ),
    ),
)
