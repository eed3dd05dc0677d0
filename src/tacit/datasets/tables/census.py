"""A public-use sample of the United States census: 25,766 adults in Fulton County, Georgia, with 18 columns."""

from pathlib import Path

from tacit.datasets.catalogue import FileInfo, SetInfo
from tacit.datasets.locating import locate

_FILE = FileInfo("fulton.csv", 1_264_220, "0fe7af5cb71ff1713b0960c81e87fa1684a6234560353e4d82be8cf854dbce31")
_CENSUS = SetInfo(
    name="pums",
    title="Public-use microdata sample, Fulton County",
    classes=2,
    input_shape=(17,),
    train_examples=25_766,
    test_examples=0,
    homepage="https://www.census.gov/programs-surveys/acs/microdata.html",
    files=(_FILE,),
    by_hand="place fulton.csv there",
)


def census_file() -> Path:
    """The sample's CSV file, checked by its SHA-256. It is looked for in the folder ``pums``, where named sets are."""
    return locate(_CENSUS, download=False, progress=False) / _FILE.name
