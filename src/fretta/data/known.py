"""What is known about the public data sets: folders, domains, classes, counts."""

from __future__ import annotations

from dataclasses import dataclass

SEVERITIES: tuple[int, ...] = (1, 2, 3, 4, 5)

# ImageNet-C is distributed in archives; some people keep one folder per archive.
IMAGENET_C_GROUPS: tuple[str, ...] = ("noise", "blur", "weather", "digital", "extra")


@dataclass(frozen=True)
class DomainSet:
    """A data set laid out as `<folder>/<domain>/<class>/*.jpg`."""

    title: str
    folders: tuple[str, ...]  # names the folder goes by, compared without case, blanks and dashes
    counts: dict[str, int]  # images per domain, in the order the papers list the domains
    classes: tuple[str, ...] | None  # in label order; None where only their number is checked
    class_count: int

    @property
    def domains(self) -> tuple[str, ...]:
        return tuple(self.counts)


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


PACS_CLASSES = ("dog", "elephant", "giraffe", "guitar", "horse", "house", "person")
VLCS_CLASSES = ("bird", "car", "chair", "dog", "person")
# Sorted by code point, as label numbers are: TV comes before Table.
OFFICEHOME_CLASSES = _words("""
    Alarm_Clock Backpack Batteries Bed Bike Bottle Bucket Calculator Calendar Candles Chair
    Clipboards Computer Couch Curtains Desk_Lamp Drill Eraser Exit_Sign Fan File_Cabinet Flipflops
    Flowers Folder Fork Glasses Hammer Helmet Kettle Keyboard Knives Lamp_Shade Laptop Marker
    Monitor Mop Mouse Mug Notebook Oven Pan Paper_Clip Pen Pencil Postit_Notes Printer Push_Pin
    Radio Refrigerator Ruler Scissors Screwdriver Shelf Sink Sneakers Soda Speaker Spoon TV Table
    Telephone ToothBrush Toys Trash_Can Webcam
    """)

DOMAIN_SETS: dict[str, DomainSet] = {
    "pacs": DomainSet(
        title="PACS",
        folders=("PACS", "pacs_data", "kfold"),
        counts={"art_painting": 2048, "cartoon": 2344, "photo": 1670, "sketch": 3929},
        classes=PACS_CLASSES,
        class_count=7,
    ),
    "officehome": DomainSet(
        title="OfficeHome",
        folders=("OfficeHome", "OfficeHomeDataset_10072016", "OfficeHomeDataset"),
        counts={"Art": 2427, "Clipart": 4365, "Product": 4439, "Real World": 4357},
        classes=OFFICEHOME_CLASSES,
        class_count=65,
    ),
    "vlcs": DomainSet(
        title="VLCS",
        folders=("VLCS",),
        counts={"Caltech101": 1415, "LabelMe": 2656, "SUN09": 3282, "VOC2007": 3376},
        classes=VLCS_CLASSES,
        class_count=5,
    ),
    "domainnet": DomainSet(
        title="DomainNet",
        folders=("DomainNet",),
        counts={
            "clipart": 48129,
            "infograph": 51605,
            "painting": 72266,
            "quickdraw": 172500,
            "real": 172947,
            "sketch": 69128,
        },
        classes=None,
        class_count=345,
    ),
}

CIFAR10_CLASSES = _words("airplane automobile bird cat deer dog frog horse ship truck")
CIFAR100_CLASSES = _words("""
    apple aquarium_fish baby bear beaver bed bee beetle bicycle bottle bowl boy bridge bus butterfly
    camel can castle caterpillar cattle chair chimpanzee clock cloud cockroach couch crab crocodile
    cup dinosaur dolphin elephant flatfish forest fox girl hamster house kangaroo keyboard lamp
    lawn_mower leopard lion lizard lobster man maple_tree motorcycle mountain mouse mushroom
    oak_tree orange orchid otter palm_tree pear pickup_truck pine_tree plain plate poppy porcupine
    possum rabbit raccoon ray road rocket rose sea seal shark shrew skunk skyscraper snail snake
    spider squirrel streetcar sunflower sweet_pepper table tank telephone television tiger tractor
    train trout tulip turtle wardrobe whale willow_tree wolf woman worm
    """)


@dataclass(frozen=True)
class CifarSet:
    """Clean CIFAR (pickles) and its corrupted arrays."""

    title: str
    folders: tuple[str, ...]
    meta: str
    train: tuple[str, ...]
    test: tuple[str, ...]
    classes: tuple[str, ...]
    corrupted: tuple[str, ...]  # folder names of the `-C` version

    def batches(self, split: str) -> tuple[str, ...]:
        return self.train if split == "train" else self.test


CIFAR: dict[str, CifarSet] = {
    "cifar10": CifarSet(
        title="CIFAR-10",
        folders=("cifar-10-batches-py",),
        meta="batches.meta",
        train=tuple(f"data_batch_{i}" for i in range(1, 6)),
        test=("test_batch",),
        classes=CIFAR10_CLASSES,
        corrupted=("CIFAR-10-C",),
    ),
    "cifar100": CifarSet(
        title="CIFAR-100",
        folders=("cifar-100-python",),
        meta="meta",
        train=("train",),
        test=("test",),
        classes=CIFAR100_CLASSES,
        corrupted=("CIFAR-100-C",),
    ),
}
CIFAR_IMAGES = {"train": 50000, "test": 10000}
