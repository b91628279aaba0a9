#!/bin/busybox sh
# The guest's first process: sets the NVDIMM up, if there is one, runs /command, says how it ended,
# powers off.
# Its standard output is the second serial port; lines that begin with "@" are for the host.
/bin/busybox --install -s /bin
export PATH=/bin HOME=/ TMPDIR=/tmp
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
mkdir -p /dev/shm && mount -t tmpfs tmpfs /dev/shm
stty -F /dev/ttyS1 raw -echo
exec >/dev/ttyS1 2>&1 </dev/null

finish() {
    sync
    echo "@end $1"
    # Let the port drain before the power goes.
    sleep 0.2
    poweroff -f
    sleep 60
}
fail() {
    echo "the guest: $1"
    finish broken
}
while read -r module; do
    insmod "/modules/$module" || fail "insmod $module failed"
done </modules/order

mode=$(cat /mode)
bus=/sys/bus/nd
ready() {
    if [ "$mode" = fsdax ]; then
        [ -b /dev/pmem0 ] && [ "$(cat /sys/block/pmem0/queue/dax)" = 1 ]
    else
        [ -c /dev/dax0.0 ]
    fi
}
wait_for() {
    tries=200
    while ! "$@"; do
        tries=$((tries - 1))
        [ $tries -gt 0 ] || return 1
        sleep 0.05
    done
}
appeared() { [ -b /dev/pmem0 ] || [ -c /dev/dax0.0 ]; }
[ "$mode" = disk ] || wait_for appeared || fail "there is no NVDIMM"
if [ "$mode" != disk ] && ! ready; then
    # A new NVDIMM is one raw namespace, which cannot be mapped with MAP_SYNC. The mode is written
    # to its info block, so this happens once in the life of an image.
    [ "$(cat $bus/devices/namespace0.0/mode)" = raw ] || fail "the NVDIMM was made for another mode"
    echo namespace0.0 >$bus/drivers/nd_pmem/unbind
    if [ "$mode" = fsdax ]; then
        seed=$(cat $bus/devices/region0/pfn_seed) driver=nd_pmem
    else
        seed=$(cat $bus/devices/region0/dax_seed) driver=dax_pmem
    fi
    {
        echo ram >$bus/devices/$seed/mode &&
            echo 2097152 >$bus/devices/$seed/align &&
            cat /proc/sys/kernel/random/uuid >$bus/devices/$seed/uuid &&
            echo namespace0.0 >$bus/devices/$seed/namespace &&
            echo "$seed" >$bus/drivers/$driver/bind
    } || fail "the NVDIMM cannot be used as $mode"
    wait_for ready || fail "there is no $mode device"
fi
if [ "$mode" = fsdax ]; then
    mount -t ext4 -o dax /dev/pmem0 /mnt/pmem || fail "mounting ext4 with -o dax failed"
fi
cd /host || fail "there is nothing to run"
echo "@begin"
sh /command
status=$?
cd /
[ "$mode" != fsdax ] || umount /mnt/pmem || fail "the file system is still in use"
finish $status
