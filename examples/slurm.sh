#!/bin/sh
# Images on a cluster: an array job whose tasks share out the images, and a job that joins what they wrote.
#
#     sh examples/slurm.sh TASKS SOURCE OUT [options of isthmus predict]
#
# submits `TASKS` tasks that read SOURCE (a folder that all nodes see) and write OUT/shard-*, and a job behind them that
# writes OUT/all as one run would have. A task that was interrupted goes on where it was, and one that was done is done at once:
# submit the whole again with the same TASKS. Environment: ISTHMUS (the program, default isthmus), SBATCH (more options of
# sbatch, such as --gres=gpu:1 -p PARTITION).
set -eu
isthmus=${ISTHMUS:-isthmus}
case ${1:-} in '' | *[!0-9]* | 0) sed -n '2,10s/^# \{0,1\}//p' "$0" >&2; exit 2 ;; esac
[ $# -ge 3 ] || { sed -n '2,10s/^# \{0,1\}//p' "$0" >&2; exit 2; }
tasks=$1 source=$2 out=$3
shift 3
mkdir -p "$out"

# What sbatch runs: a word, and several, quoted for the shell of the job.
quoted() { printf "'%s'" "$(printf %s "$1" | sed "s/'/'\\\\''/g")"; }
all_quoted() { for word in "$@"; do printf ' %s' "$(quoted "$word")"; done; }
shards=$(quoted "$out")/shard-
task="exec$(all_quoted "$isthmus" predict "$source") -o $shards\$SLURM_ARRAY_TASK_ID --shard auto --resume$(all_quoted "$@")"
join="exec$(all_quoted "$isthmus" merge) $shards* -o $(quoted "$out/all")"

# shellcheck disable=SC2086
id=$(sbatch --parsable --job-name=isthmus --array="1-$tasks" --output="$out/task-%a.log" ${SBATCH:-} --wrap "$task")
# afterany: images that fail are named in failed.ndjson and end their task with 7, which is no reason to stop; a shard that is
# not complete is one, and merge says so.
# shellcheck disable=SC2086
sbatch --parsable --job-name=isthmus-merge --dependency="afterany:${id%%;*}" --output="$out/merge.log" ${SBATCH:-} --wrap "$join"
