package vm

import (
	"os/exec"
	"testing"

	"colabrelay/shared/stacks"
)

// A process whose first thread has ended has the state of one that has ended.
func TestAProcessRunsAsLongAsAnyOfItsThreads(t *testing.T) {
	const test = `
child = subprocess.Popen([sys.executable, "-c", '''
import ctypes, platform, threading, time
threading.Thread(target=time.sleep, args=(600,)).start()
ctypes.CDLL(None).syscall({"x86_64": 60, "aarch64": 93}[platform.machine()], 0)
'''])
def state():
    with open(f"/proc/{child.pid}/stat") as file:
        return file.read().rpartition(")")[2].split()[0]
while state() != "Z":
    time.sleep(0.01)
print("with one thread" if start_time(child.pid) else "taken for ended")
child.kill()
os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
print("taken for running" if start_time(child.pid) else "ended")
`
	out, err := exec.CommandContext(t.Context(), stacks.Old(t).Python, "-c", LaunchSource+test).CombinedOutput()
	if err != nil || string(out) != "with one thread\nended\n" {
		t.Errorf("%q, %v", out, err)
	}
}
