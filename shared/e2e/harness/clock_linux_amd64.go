package harness

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"time"
)

// Linux has no wall clock for a single process, and a static program takes no preloaded
// library. So the function that programs call for the time is replaced in the memory of
// the process: clock_gettime of the vDSO, the library that the system maps into each.

// clockCode is the new clock_gettime(clock, *timespec). It asks the system, and adds the
// seconds at clockSeconds to the wall clock, which is clock 0:
//
//	mov $228,%eax; syscall; test %edi,%edi; jne end
//	mov seconds(%rip),%rcx; add %rcx,(%rsi)
//	end: ret
var clockCode = []byte{
	0xb8, 0xe4, 0, 0, 0, 0x0f, 0x05, 0x85, 0xff, 0x75, 0x0a,
	0x48, 0x8b, 0x0d, 6, 0, 0, 0, 0x48, 0x01, 0x0e, 0xc3, 0, 0,
}

// clockSeconds is where the seconds are: behind the code, aligned, so that they change at once.
var clockSeconds = int64(len(clockCode))

// startWithClock calls start, which starts cmd, and sets its clock before the program's first
// instruction runs.
func startWithClock(cmd *exec.Cmd, offset time.Duration, start func() error) error {
	runtime.LockOSThread() // the thread that starts a process traces it
	defer runtime.UnlockOSThread()
	cmd.SysProcAttr = &syscall.SysProcAttr{Ptrace: true}
	if err := start(); err != nil {
		return err
	}
	pid := cmd.Process.Pid
	var status syscall.WaitStatus
	if _, err := syscall.Wait4(pid, &status, 0, nil); err != nil {
		return err
	}
	err := writeClock(pid, append(bytes.Clone(clockCode), seconds(offset)...), 0)
	if err == nil {
		err = syscall.PtraceDetach(pid)
	}
	if err != nil {
		_ = cmd.Process.Kill()
	}
	return err
}

// SetClock sets the wall clock of a program that was started with a ClockOffset. Its own
// children have the machine's clock.
func SetClock(pid int, offset time.Duration) error {
	return writeClock(pid, seconds(offset), clockSeconds)
}

func seconds(offset time.Duration) []byte {
	return binary.LittleEndian.AppendUint64(nil, uint64(int64(offset/time.Second)))
}

// writeClock writes data at an offset in the process's clock_gettime.
func writeClock(pid int, data []byte, at int64) error {
	maps, err := os.ReadFile(fmt.Sprintf("/proc/%d/maps", pid))
	if err != nil {
		return err
	}
	var from, to int64
	for line := range strings.Lines(string(maps)) {
		if strings.Contains(line, "[vdso]") {
			_, err = fmt.Sscanf(line, "%x-%x", &from, &to)
		}
	}
	if err != nil {
		return err
	}
	memory, err := os.OpenFile(fmt.Sprintf("/proc/%d/mem", pid), os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer memory.Close()
	image := make([]byte, to-from)
	if _, err := memory.ReadAt(image, from); err != nil {
		return err
	}
	function, err := clockFunction(image)
	if err == nil {
		_, err = memory.WriteAt(data, from+function+at)
	}
	return err
}

// clockFunction returns the offset of clock_gettime in the image of a vDSO.
func clockFunction(image []byte) (int64, error) {
	file, err := elf.NewFile(bytes.NewReader(image)) // fails if there was no vDSO
	if err != nil {
		return 0, err
	}
	symbols, err := file.DynamicSymbols()
	if err != nil {
		return 0, err
	}
	for _, s := range symbols {
		if s.Name == "__vdso_clock_gettime" {
			return int64(s.Value), nil
		}
	}
	return 0, errors.New("the vDSO has no clock_gettime")
}
