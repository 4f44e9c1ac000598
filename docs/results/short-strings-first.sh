#!/bin/sh
# Train on strings of 4 to 20 symbols, then 8 to 40, then the recipe's 40 to 80, each from the best of the one before.
#
#     sh docs/results/short-strings-first.sh LANGUAGE MODEL FOLDER [EPOCHS EPOCHS EPOCHS]
set -e
[ $# -eq 3 ] || [ $# -eq 6 ] || { sed -n 2,4p "$0" >&2; exit 2; }
train="ndstack train $1 --model $2 --seed 1 --threads 1"
case $2 in rns*) train="$train --set options.bottom_fix=false" ;; esac
$train --out "$3/short" --lengths 4:20 --learning-rate 0.01 --max-epochs "${4:-60}"
$train --out "$3/middle" --lengths 8:40 --learning-rate 0.01 --max-epochs "${5:-25}" --start-from "$3/short"
$train --out "$3/long" --max-epochs "${6:-25}" --start-from "$3/middle"
