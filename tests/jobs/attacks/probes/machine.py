# What of the machine is visible or writable: /proc, /sys, devices, sockets, mounts, other processes.
import errno, glob, json, os, resource, socket, stat


def target(fd):
    try:
        return os.readlink("/proc/self/fd/" + fd)
    except OSError:
        return "/proc/gone"


inherited = sorted(map(target, os.listdir("/proc/self/fd")))


def attempt(path, flags):
    try:
        fd = os.open(path, flags)
    except OSError as error:
        return errno.errorcode.get(error.errno)
    try:
        if flags & os.O_WRONLY:
            os.write(fd, b"0")
            return "ok"
        return "ok" if os.read(fd, 16) else "empty"
    except OSError as error:
        return errno.errorcode.get(error.errno)
    finally:
        os.close(fd)


def writable(path):
    try:
        os.close(os.open(path, os.O_WRONLY))
        return True
    except OSError:
        return False


helper = open("/proc/1/cmdline").read().split("\0")[0]
writes = {path: attempt(path, os.O_WRONLY) for path in [
    "/proc/sys/kernel/core_pattern", "/proc/sysrq-trigger", "/proc/sys/net/ipv4/ip_forward", "/proc/sys/kernel/modprobe",
    "/proc/sys/fs/binfmt_misc/register", "/proc/sys/vm/overcommit_memory", "/sys/kernel/uevent_helper",
    "/sys/power/state", "/proc/irq/default_smp_affinity", "/etc/resolv.conf", "/etc/hosts", "/etc/hostname", helper, "/usr/local/bin/sally",
]}
reads = {path: attempt(path, os.O_RDONLY) for path in [
    "/proc/kcore", "/proc/keys", "/proc/timer_list", "/proc/sched_debug", "/dev/mem", "/dev/kmsg", "/dev/sda", "/dev/vda",
]}
listed = {path: sorted(os.listdir(path)) if os.path.isdir(path) else None for path in ["/sys/firmware", "/proc/scsi", "/proc/acpi"]}
groups = [path for path in glob.glob("/sys/fs/cgroup/**/*release_agent*", recursive=True) + glob.glob(
    "/sys/fs/cgroup/**/devices.allow", recursive=True) + glob.glob("/sys/fs/cgroup/**/cgroup.procs", recursive=True) if writable(path)]

sockets, blocks = [], []
for folder, folders, files in os.walk("/", onerror=lambda _: None):
    folders[:] = [f for f in folders if os.path.join(folder, f) not in ("/proc", "/sys")]
    for name in files:
        path = os.path.join(folder, name)
        try:
            mode = os.lstat(path).st_mode
        except OSError:
            continue
        if stat.S_ISSOCK(mode):
            sockets.append(path)
        if stat.S_ISBLK(mode):
            blocks.append(path)
mounts = []
for line in open("/proc/self/mountinfo"):
    before, after = line.rstrip("\n").split(" - ")
    fields = before.split()
    mounts.append({"at": fields[4], "root": fields[3], "options": fields[5], "type": after.split()[0]})

abstract = [l.split()[-1] for l in open("/proc/net/unix").read().splitlines()[1:] if "@" in l]
reached = []
for name in ["\0/containerd-shim/x.sock", "\0/tmp/.X11-unix/X0", "\0/tmp/dbus-x", "\0sallyport-test-abstract"]:
    s = socket.socket(socket.AF_UNIX)
    try:
        s.connect(name)
        reached.append(name)
    except OSError:
        pass

processes = sorted(int(p) for p in os.listdir("/proc") if p.isdigit())
first = {name: attempt("/proc/1/" + name, os.O_RDONLY) for name in ["environ", "mem", "maps"]}
for name in ["root", "cwd", "exe", "fd/0", "ns/net"]:
    try:
        first[name] = os.readlink("/proc/1/" + name)
    except OSError as error:
        first[name] = errno.errorcode.get(error.errno)
import ctypes
libc = ctypes.CDLL(None, use_errno=True)
first["ptrace"] = "ok" if libc.ptrace(16, 1, 0, 0) == 0 else errno.errorcode.get(ctypes.get_errno())

print(json.dumps({
    "writes": writes, "reads": reads, "listed": listed, "groups": groups, "sockets": sockets, "blocks": blocks,
    "mounts": mounts, "abstract": abstract, "reached": reached, "processes": len(processes), "first": first,
    "cmdline": open("/proc/1/cmdline", "rb").read().decode().split("\0"),
    "core": list(resource.getrlimit(resource.RLIMIT_CORE)), "files": resource.getrlimit(resource.RLIMIT_NOFILE)[1],
    "environment": dict(os.environ), "fds": inherited,
    "core_pattern": open("/proc/sys/kernel/core_pattern").read(),
}))
