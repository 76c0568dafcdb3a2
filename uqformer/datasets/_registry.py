"""What the files must be: a checksum each, for folders and for downloads alike.

A hash of 64 digits is a sha256, one of 32 digits the md5 that the publisher lists.
"""

__all__ = ["FILES", "TABLES"]

FILES = {
    "cifar10/cifar10_test10k.npz": (
        "b4bea1028c1ab415365d32c7206876212fc1ee196a5664a0fec9b5b81501ea89"
    ),
    "cifar10/cifar10_train20k.npz": (
        "8ab31a62bb295a363eecde28ecda1485a01d09594fed68141f164c8bd147a67a"
    ),
    "cola/in_domain_dev.tsv": (
        "77176f6a03faa5a1c4f23c69971fc1bff565931112fb65af47b2d6e24b7f42f7"
    ),
    "cola/in_domain_train.tsv": (
        "f320a10f92d3bce6b29152fde322a362eac39238e50d8de0c8815457fdf4fc12"
    ),
    "cola/out_of_domain_dev.tsv": (
        "201b9c57b2a20f1282242eec0ed8995729e3be19c29a46c047b3727338836c05"
    ),
    "images/mnist_t10k.npz": (
        "3ba302235efdc3e7e4e84db9ce6a6d6cbc9dd1162d4e79dd0b6a606afc745423"
    ),
    "images/omniglot_small1_28x28.npz": (
        "da77b949fb79ae1490cf2be3b8661dcc6faefe8e28450f11ab0e5ea308d58e44"
    ),
    "imdb/test5k.csv.gz": (
        "3366012618422d8e38d79e0833007787b19b94de4ed45cd60a2f5ae46f63ff40"
    ),
    "imdb/train5k.csv.gz": (
        "7eb6a653c1dce5789bc92aea88b75db8c073c60afe3be3d0bba6761ebdf2096d"
    ),
    "tabular/adult_test.csv.gz": (
        "833b7a2b1672f82cd1c72d34a141634f7762e7f979c8c5cca2ac1af60109c036"
    ),
    "tabular/adult_train.csv.gz": (
        "d624afa4c2d929854f8b4db297d0e6724aecf862c53d85b1eb49ad0af737dbb2"
    ),
    "tabular/bank.csv.gz": (
        "568e3f17d1b46bc696bdae9092f1f84624af5f511231b122714bef17a7a8bab0"
    ),
    "tabular/covtype15k.csv.gz": (
        "041eb0c0e0967080d3befd3c024e2b7a265bdce8be8ccbddd247d77a4e54f629"
    ),
    "tabular/titanic.csv.gz": (
        "36cd7085af0b3c357fdbf4fcf42b23dc8cec6cabbb99ddf9d7ea190036502940"
    ),
    "ts/ETTh1.csv.gz": (
        "f1141f82f9d46968f05afa77ba16abfc4f790fe07583f9de06bb685b29a5411f"
    ),
    "ts/ETTm1.csv.gz": (
        "a3d8dc1454f3762c72f6a3b5c56cf852077724ec52f5316896f17c937474cde7"
    ),
    "uci/concrete.npz": (
        "7bc154459810700fda97c433fc6e56870abf77ff85189c38af2923cd7f8ab8a1"
    ),
    "uci/energy.npz": (
        "82a6c9fbd52b9bc382051f3754581cb9175ffc025ec7670e0158ad2e64a6fce0"
    ),
    "uci/kin8nm.npz": (
        "f94e23fda78f918ecbcc6e4970a07413b23d9ed9a553897b312e903cc665e8c4"
    ),
    "uci/naval.npz": "0b594a2d66f50a7fc01ae59684002da5a22da15b7c5dc0421c51545c96eb4485",
    "uci/power.npz": "4f853f06c490b9c0513d582ee7b678e3ad00ac57d21e0fc9d9e928c1ab23ff80",
    "uci/protein.npz": (
        "11f2811a4cab8bd139f09924ca8f3c34c801ef4cad68550ce9ddfa848d406424"
    ),
    "uci/wine_red.npz": (
        "198bc7814c3327800dc0b89923c8c159798b19f570a5f023ee12f187af1318bf"
    ),
    "uci/yacht.npz": "df56a970fb925ac13870b427c708a57b88e0f09b1bd603f2f9f0b6a05e49e20a",
    "weather/era5_t2m_uk_2019-03.npz": (
        "949ff3ff483e244b83987353494017c580eeb1660fa43f65424de10496f6ed4b"
    ),
    "ts/ETTh1.csv": "f18de3ad269cef59bb07b5438d79bb3042d3be49bdeecf01c1cd6d29695ee066",
    "weather/era5-2mt-2019-03-uk.grib": "eae4f0d198f4f6c16ba950975a217155",
}
"""Path in the data folder to hash; a file that is not listed is not verified."""

TABLES = {
    "concrete": "d0e2d2f0f50277624d7d00b98c4e8b66465e8d5f2f51738500552b8b10a4689b",
    "energy": "3563209cb65c108b72e6ee45f56f12e53c3f346f10b6b30a79ec5b7c0a0a1dd9",
    "kin8nm": "7fad37438fc1228ed099177766b084fb5577bf7457d7a6460f8d0389b21681ab",
    "naval": "b47c7849a1dd436e6fe44bbb9a1def99e35b4e9108b1936a1a00f7f32ce08584",
    "power": "d3c75624ea5df1256c9b8e81560e1f9381014565c5f558d3293831fa521b82e9",
    "protein": "19667c545027b658fa8b2fa3620154e7046b3d263df1ec263514676eb3585096",
    "wine_red": "d4f6a6d672e0ee31d41fdd93b4b58985b45a31f2f971499c18137c42229278ac",
    "yacht": "ec08588637fd93582116a1ead33f0c1e787dae755168073608e030e5282a3f4e",
}
"""Name of a UCI set to the hash of its features and target as float64, row by row."""
