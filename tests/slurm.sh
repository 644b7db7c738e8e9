#!/bin/sh
# examples/slurm.sh on a Slurm of one machine: sh tests/slurm.sh PROGRAM [SOURCE]
#
# Starts munged, slurmctld and slurmd of its own, in a folder of its own, on ports of its own (Debian: slurm-wlm, munge; to be run
# as root, best in a container), submits an array job of three tasks and what joins them, and compares that with one run,
# byte for byte but for times. Then a task is killed in the middle, and the whole submitted again.
set -eu
program=$(realpath "${1:?usage: sh tests/slurm.sh PROGRAM [SOURCE]}")
cd "$(dirname "$0")/.."
source=$(realpath "${2:-weights/demo}")
for tool in munged slurmctld slurmd sbatch squeue scancel; do
    command -v "$tool" >/dev/null || { echo "left out: no $tool (Debian: slurm-wlm, munge)"; exit 77; }
done
work=$(mktemp -d)
chmod 755 "$work"
processes=
stop() {
    for p in $processes; do kill "$p" 2>/dev/null || true; done
    rm -rf "$work"
}
trap stop EXIT
host=$(hostname -s)
mkdir "$work/state" "$work/spool" "$work/munge"
chmod 700 "$work/munge"
dd if=/dev/urandom of="$work/munge/key" bs=1 count=1024 2>/dev/null
chmod 400 "$work/munge/key"
cat >"$work/slurm.conf" <<CONF
ClusterName=one
SlurmctldHost=$host(127.0.0.1)
SlurmUser=root
AuthInfo=socket=$work/munge.socket
SlurmctldPort=26817
SlurmdPort=26818
SlurmctldPidFile=$work/slurmctld.pid
SlurmdPidFile=$work/slurmd.pid
SlurmctldLogFile=$work/slurmctld.log
SlurmdLogFile=$work/slurmd.log
StateSaveLocation=$work/state
SlurmdSpoolDir=$work/spool
ProctrackType=proctrack/pgid
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
MpiDefault=none
ReturnToService=2
NodeName=$host NodeAddr=127.0.0.1 CPUs=$(nproc) State=UNKNOWN
PartitionName=all Nodes=$host Default=YES MaxTime=INFINITE State=UP
CONF
export SLURM_CONF="$work/slurm.conf"
munged --foreground --force --key-file="$work/munge/key" --socket="$work/munge.socket" --pid-file="$work/munge/pid" \
    --log-file="$work/munge/log" --seed-file="$work/munge/seed" >"$work/munge.log" 2>&1 &
processes=$!
while [ ! -S "$work/munge.socket" ]; do kill -0 "$processes" || { cat "$work/munge.log"; exit 1; }; sleep 0.2; done
slurmctld -D >"$work/ctld.out" 2>&1 &
processes="$! $processes"
slurmd -D >"$work/d.out" 2>&1 &
processes="$! $processes"
tries=0
until sinfo -h -o %T 2>/dev/null | grep -q '^idle$'; do
    tries=$((tries + 1))
    [ "$tries" -lt 150 ] || { cat "$work/slurmctld.log" "$work/slurmd.log" "$work"/*.out; echo "FAILED: no idle node"; exit 1; }
    sleep 0.2
done

wait_for_jobs() { while [ -n "$(squeue -h)" ]; do sleep 0.5; done; }
same() {
    for folder in one all; do sed -i -e 's/"ms":{[^}]*}//' "$work/$folder/frames.ndjson"; done
    diff -r "$work/one" "$work/all"
}
export ISTHMUS="$program"
"$program" predict "$source" -o "$work/one" --quiet
sh examples/slurm.sh 3 "$source" "$work/out" --quiet >/dev/null
wait_for_jobs
cat "$work/out/merge.log"
mv "$work/out/all" "$work/all"
same
echo "three tasks: the same as one run"

# A task that is killed leaves its shard incomplete; merge says so, and the next submission completes it.
rm -r "$work/all" "$work/out/shard-2"
cat >"$work/killed" <<TASK
#!/bin/sh
[ "\$SLURM_ARRAY_TASK_ID" = 2 ] || exec "$program" "\$@"
"$program" "\$@" &
until [ -s "$work/out/shard-2/frames.ndjson.partial" ]; do kill -0 \$! || exit 1; sleep 0.02; done
kill -9 \$!
TASK
chmod +x "$work/killed"
ISTHMUS="$work/killed" sh examples/slurm.sh 3 "$source" "$work/out" --quiet >/dev/null
wait_for_jobs
grep . "$work/out/merge.log"
[ ! -e "$work/out/all/frames.ndjson" ] || { echo "FAILED: merged without shard 2"; exit 1; }
sh examples/slurm.sh 3 "$source" "$work/out" --quiet >/dev/null
wait_for_jobs
mv "$work/out/all" "$work/all"
same
echo "a killed task, submitted again: the same as one run"
