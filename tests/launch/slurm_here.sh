# shellcheck shell=bash
# A Slurm of one node on this machine, for tests: start_slurm FOLDER, stop_slurm. Sourced.
# It needs slurm-wlm and munge, and root. SLURM_CONF is set for its clients.

slurm_problem() {
  local program
  for program in munged slurmctld slurmd sbatch; do
    if ! command -v "$program" >/dev/null; then
      echo "$program is missing (packages slurm-wlm and munge)"
      return
    fi
  done
  if [ "$(id -u)" != 0 ]; then echo "slurmd needs root"; fi
}

SLURM_PIDS=()

start_slurm() {
  local folder=$1 host cores i
  host=$(hostname -s)
  cores=$(nproc)
  mkdir -p "$folder/state" "$folder/spool" "$folder/munge"
  # munged refuses folders that others may write to, anywhere above its socket.
  mkdir -p /run/munge && chown munge: /run/munge /etc/munge/munge.key
  runuser -u munge -- munged --foreground --log-file=/dev/null --pid-file=/run/munge/test.pid \
    --seed-file=/var/lib/munge/test.seed >"$folder/munge/log" 2>&1 &
  SLURM_PIDS+=($!)
  cat >"$folder/slurm.conf" <<END
ClusterName=ferry
SlurmctldHost=$host(127.0.0.1)
SlurmUser=root
SlurmdUser=root
SlurmctldPort=16817
SlurmdPort=16818
AuthType=auth/munge
CryptoType=crypto/munge
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
ReturnToService=2
MpiDefault=none
KillWait=5
SchedulerParameters=sched_min_interval=0,sched_interval=1,bf_interval=1
MinJobAge=600
StateSaveLocation=$folder/state
SlurmdSpoolDir=$folder/spool
SlurmctldPidFile=$folder/slurmctld.pid
SlurmdPidFile=$folder/slurmd.pid
AccountingStorageType=accounting_storage/none
JobAcctGatherType=jobacct_gather/none
NodeName=$host NodeAddr=127.0.0.1 CPUs=$cores State=UNKNOWN
PartitionName=all Nodes=$host Default=YES MaxTime=INFINITE State=UP
END
  export SLURM_CONF="$folder/slurm.conf"
  slurmctld -D -f "$SLURM_CONF" >"$folder/slurmctld.log" 2>&1 &
  SLURM_PIDS+=($!)
  slurmd -D -f "$SLURM_CONF" >"$folder/slurmd.log" 2>&1 &
  SLURM_PIDS+=($!)
  for ((i = 0; i < 100; ++i)); do
    if [ "$(sinfo --noheader --format=%T 2>/dev/null)" = idle ]; then return 0; fi
    sleep 0.3
  done
  tail -n 5 "$folder"/*.log "$folder/munge/log"
  return 1
}

stop_slurm() {
  if [ ${#SLURM_PIDS[@]} -gt 0 ]; then kill "${SLURM_PIDS[@]}" 2>/dev/null; fi
  wait "${SLURM_PIDS[@]}" 2>/dev/null
}
