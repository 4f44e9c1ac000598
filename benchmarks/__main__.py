"""`make bench`: every benchmark, one table each."""

from benchmarks import formal_languages

if __name__ == "__main__":
    formal_languages.main()
