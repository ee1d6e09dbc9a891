#!/usr/bin/env python3
"""make_parquet_fixtures.py OUT: small Parquet files for tests/tools/data/parquet_test.cpp, as pyarrow, polars, DuckDB and fastparquet write them, and rows.json: what is in all of them."""
import json
import os
import sys

import duckdb
import pandas
import polars
import pyarrow
import pyarrow.parquet as parquet

WORDS = ['', 'plain words', 'Wörter and 日本語 🙂', 'quotes " and \\ and / and \n\t\r\0\x1f\x7f', 'x' * 700, '{"text": "no"}']


def main():
    out = sys.argv[1]
    os.makedirs(out, exist_ok=True)
    texts = [None if i % 7 == 3 else f'{WORDS[i % 6]}{i if i % 5 else ""}' for i in range(200)]
    titles = [f'title {i % 3}' for i in range(200)]
    rows = {'text': texts, 'title': titles, 'n': list(range(200))}
    with open(f'{out}/rows.json', 'w') as f:
        json.dump({'text': texts, 'title': titles}, f)
    schema = pyarrow.schema([('n', pyarrow.int64()), ('text', pyarrow.string()), pyarrow.field('title', pyarrow.string(), nullable=False)])
    table = pyarrow.table(rows, schema=schema)
    small = dict(row_group_size=60, data_page_size=512, write_statistics=False)
    for codec in ('none', 'snappy', 'gzip', 'zstd'):
        parquet.write_table(table, f'{out}/arrow_{codec}.parquet', compression=codec, **small)
    parquet.write_table(table, f'{out}/arrow_v2.parquet', data_page_version='2.0', compression='snappy', **small)
    parquet.write_table(table, f'{out}/arrow_plain.parquet', use_dictionary=False, compression='zstd', **small)
    parquet.write_table(table, f'{out}/arrow_large.parquet', compression='snappy')  # one group, statistics
    nested = pyarrow.table({'text': [['a', 'b'], []], 'number': [1, 2], 'inner': [{'text': 'x'}, {'text': 'y'}]})
    parquet.write_table(nested, f'{out}/nested.parquet', write_statistics=False)
    parquet.write_table(table.slice(0, 0), f'{out}/empty.parquet', write_statistics=False)
    parquet.write_table(table.slice(0, 5), f'{out}/lz4.parquet', compression='lz4', write_statistics=False)
    parquet.write_table(table.slice(0, 5), f'{out}/delta.parquet', use_dictionary=False, column_encoding={'text': 'DELTA_BYTE_ARRAY'}, write_statistics=False)
    polars.DataFrame(rows).write_parquet(f'{out}/polars.parquet', row_group_size=100, statistics=False)
    connection = duckdb.connect()
    connection.register('t', table)
    connection.execute(f"copy t to '{out}/duckdb.parquet' (format parquet)")
    pandas.DataFrame(rows).to_parquet(f'{out}/fastparquet.parquet', engine='fastparquet', row_group_offsets=[0, 90])


if __name__ == '__main__':
    main()
