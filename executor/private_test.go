package main

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"colabrelay/shared/contract"
	"colabrelay/shared/stacks"
	"colabrelay/shared/tier"
)

// spy tries every way in which Linux lets a process read the memory and environment of
// another process of the same user, and lists those that worked. It gets the secret in
// two halves, so that its own code does not contain it.
const spy = `
import ctypes, glob, os
found = []
executor = os.getppid()
for name in ("environ", "mem", "maps", "auxv"):
    try:
        with open(f"/proc/{executor}/{name}", "rb") as file:
            found.append(name)
    except PermissionError:
        pass
try:
    found += [os.readlink(f"/proc/{executor}/fd/{number}") for number in os.listdir(f"/proc/{executor}/fd")]
except PermissionError:
    pass
if ctypes.CDLL(None, use_errno=True).ptrace(0x4206, executor, None, None) == 0:  # PTRACE_SEIZE
    found.append("ptrace")
for path in glob.glob("/proc/[0-9]*/environ"):
    try:
        if (HALF + OTHER).encode() in open(path, "rb").read():
            found.append(path)
    except OSError:
        pass
with open("/proc/self/status") as file:
    found += [line.strip() for line in file if line.startswith("CapEff") and int(line.split()[1], 16)]
found += [name for name in os.environ if name in WITHHELD]
found
`

func TestAPlainUsersKernelCanNotReadTheExecutorsSecrets(t *testing.T) {
	tier.Long(t)
	agents := []string{"SSH_AUTH_SOCK", "SSH_AGENT_PID", "GPG_AGENT_INFO", "GNOME_KEYRING_CONTROL", "DBUS_SESSION_BUS_ADDRESS",
		"EXECUTOR_SECRET_LAB", "NGROK_AUTHTOKEN_LAB", "NGROK_API_KEY", "TUNNEL_TOKEN"}
	environ := []string{envSecret + "=" + longSecret}
	for _, name := range agents {
		environ = append(environ, name+"=/nonexistent/agent")
	}
	code := strings.NewReplacer("HALF", pyString(longSecret[:10]), "OTHER", pyString(longSecret[10:]),
		"WITHHELD", pyString(strings.Join(append(agents, envSecret), " "))+".split()").Replace(spy)
	stacks.Each(t, func(t *testing.T, s stacks.Stack) {
		p := start(t, asPlain, withArgs("--python", s.Python), withEnv(environ...))
		p.ready()
		for _, id := range []string{"first", "after a restart"} {
			if e := p.submit(strings.ReplaceAll(id, " ", "-"), code, 20); resultOf(e) != "[]" {
				t.Errorf("%s: the kernel read %s; %+v", id, resultOf(e), e.Events)
			}
			p.restart()
		}
	})
}

func TestProgramsThatTheExecutorStartsInheritNoSecret(t *testing.T) {
	tier.Long(t)
	dir := t.TempDir()
	seen := filepath.Join(dir, "seen")
	must(t, os.WriteFile(filepath.Join(dir, "nvidia-smi"), []byte("#!/bin/sh\nenv >"+seen+"\n"), 0o700))
	p := start(t, withEnv("PATH="+dir+":"+os.Getenv("PATH"), envSecret+"="+longSecret, "SSH_AUTH_SOCK=/nonexistent/agent"))
	p.ready()
	call[contract.Probe](p, "GET", contract.PathProbe, nil)
	got, err := os.ReadFile(seen)
	must(t, err)
	if text := string(got); strings.Contains(text, longSecret) || strings.Contains(text, "SSH_AUTH_SOCK") || !strings.Contains(text, "PATH=") {
		t.Errorf("nvidia-smi was started with\n%s", text)
	}
	p.signal(syscall.SIGTERM)
	p.exit()
	if all := p.out.String() + p.errs.String(); strings.Contains(all, longSecret) || strings.Contains(all, "relay pair") {
		t.Errorf("the console shows a secret that was given:\n%s", all)
	}
}

func TestTheKernelInheritsNoOpenFiles(t *testing.T) {
	tier.Long(t)
	secret := filepath.Join(t.TempDir(), "secret")
	must(t, os.WriteFile(secret, []byte(longSecret), 0o600))
	file, err := os.Open(secret)
	must(t, err)
	defer file.Close()
	p := start(t, func(p *program) { p.cmd.ExtraFiles = []*os.File{file} })
	p.ready()
	e := p.submit("list", "import os\n[p for n in os.listdir('/proc/self/fd') if os.path.lexists('/proc/self/fd/' + n) and (p := os.readlink('/proc/self/fd/' + n)) == "+pyString(secret)+"]", 20)
	if got := resultOf(e); got != "[]" {
		t.Errorf("the kernel has inherited %s; %+v", got, e.Events)
	}
}

// asPlainUser as the value of asProgram starts an executor without privileges, also when
// root runs the tests.
const asPlainUser = "plain"

func asPlain(p *program) { p.cmd.Env = append(p.cmd.Env, asProgram+"="+asPlainUser) }

// becomePlain starts this program again without capabilities. Linux then checks root like
// any other user, but unlike another user root can still read the interpreter, wherever
// that is installed. Users other than root have no capabilities anyway.
func becomePlain() {
	runtime.LockOSThread() // the bounding set belongs to the thread, and exec keeps it
	for capability := range uintptr(64) {
		err := unix.Prctl(unix.PR_CAPBSET_DROP, capability, 0, 0, 0)
		if err == unix.EINVAL {
			break // there are no more capabilities
		}
		if err != nil && os.Geteuid() == 0 {
			fmt.Fprintln(os.Stderr, "dropping capability", capability, err)
			os.Exit(3)
		}
	}
	environ := slices.DeleteFunc(os.Environ(), func(entry string) bool { return entry == asProgram+"="+asPlainUser })
	self, err := os.Executable()
	if err == nil {
		err = syscall.Exec(self, os.Args, append(environ, asProgram+"=1"))
	}
	fmt.Fprintln(os.Stderr, "starting again:", err)
	os.Exit(3)
}
