#!/bin/sh
# make_corpus.sh FIXTURES OUT: seed files for the fuzz targets, one folder each under OUT: whole small
# files, and the items that lie inside .distcp files (each begins with a zip local header of data.pkl).
set -eu
fixtures=$1 out=$2
mkdir -p "$out/pickle" "$out/torch_archive" "$out/safetensors" "$out/config" \
    "$out/dcp_metadata" "$out/tracker" "$out/nemo" "$out/manifest" "$out/tar"
cp "$fixtures"/pickle/*.pkl "$out/pickle/"
cp "$fixtures"/torch/*.pt "$out/torch_archive/"
for file in "$fixtures"/hugging_face/*/*.safetensors; do
    cp "$file" "$out/safetensors/$(echo "${file#"$fixtures"/}" | tr / _)"
done
for file in "$fixtures"/hugging_face/*/*.json "$fixtures"/hf_names/*.json; do
    cp "$file" "$out/config/$(echo "${file#"$fixtures"/}" | tr / _)"
done
cp "$fixtures"/nemo/context/* "$out/nemo/"
cp "$fixtures"/manifest/*.json "$out/manifest/"
cp "$fixtures"/tar/*.tar "$out/tar/"
for word in 5 release iter_0000005 10 007 ' 5 '; do printf '%s' "$word" > "$out/tracker/$(echo "$word" | tr ' ' _)"; done
for metadata in "$fixtures"/dcp/*/.metadata "$fixtures"/dcp_zstd/.metadata "$fixtures"/megatron/*/iter_*/.metadata; do
    name=$(echo "${metadata#"$fixtures"/}" | tr / _)
    cp "$metadata" "$out/pickle/$name"
    cp "$metadata" "$out/dcp_metadata/$name"
done
python3 - "$fixtures" "$out" <<'PYTHON'
import pathlib
import sys
import zipfile
import io

fixtures, out = map(pathlib.Path, sys.argv[1:])
marker = b'archive/data.pkl'
for path in sorted(fixtures.glob('megatron/*/iter_*/__*_0.distcp')):
    data = path.read_bytes()
    starts, at = [], data.find(marker)
    while at >= 0:
        if data[at - 30:at - 26] == b'PK\3\4':
            starts.append(at - 30)
        at = data.find(marker, at + 1)
    for begin, end in list(zip(starts, starts[1:] + [len(data)]))[::16]:
        item, name = data[begin:end], f'{path.parts[-3]}_{path.name}_{begin}'
        if len(item) <= 4096:
            (out / 'torch_archive' / name).write_bytes(item)
        (out / 'pickle' / name).write_bytes(zipfile.ZipFile(io.BytesIO(item)).read(marker.decode()))
PYTHON
