package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"colabrelay/executor/account"
)

// rootStateDir is the default of --state-dir with --user. The kernel's user must not be
// able to replace it, as it could in the working directory.
const rootStateDir = "/var/lib/colab-relay"

// findUser finds the user of --user.
func (c *config) findUser() (err error) {
	if c.userName == "" || c.user != nil {
		return nil
	}
	if c.user, err = account.Find(c.userName); err != nil {
		return fmt.Errorf("--user %s: %w", c.userName, err)
	}
	return nil
}

// checkUser checks that the kernel's user can work, and that it can neither read the
// executor's secrets nor replace what the executor, as root, runs, writes or trusts.
func (c *config) checkUser() error {
	if c.user == nil {
		return nil
	}
	return errors.Join(
		c.checkWritable("--workdir", c.workDir, "change its owner, or choose another folder"),
		c.checkWritable("the temp folder", os.TempDir(), "set TMPDIR to a folder such as /tmp"),
		c.protect("--state-dir", &c.stateDir),
		c.protectReadyFile(),
		c.protectSecretFile(envSecretFile, c.secretFile),
		c.protectProgram(),
		c.protectTunnel(),
	)
}

func (c *config) checkWritable(what, dir, hint string) error {
	if err := c.user.CheckCanWrite(dir); err != nil {
		return fmt.Errorf("--user %s: the user can't write to %s %q: %w: %s", c.user, what, dir, err, hint)
	}
	return nil
}

// protect checks that the user can't replace what is at a path, if there is one, and resolves
// its links.
func (c *config) protect(what string, path *string) error {
	if *path == "" {
		return nil
	}
	real, err := c.user.CheckOutOfReach(*path)
	if err != nil {
		return fmt.Errorf("--user %s: %s %w: choose a path that only root can change", c.user, what, err)
	}
	*path = real
	return nil
}

func (c *config) protectReadyFile() error {
	if c.readyFile == "" {
		return nil
	}
	dir := filepath.Dir(c.readyFile)
	err := c.protect("--ready-file", &dir)
	c.readyFile = filepath.Join(dir, filepath.Base(c.readyFile))
	return err
}

func (c *config) protectSecretFile(what, path string) error {
	if path == "" {
		return nil
	}
	if c.user.CanRead(path) {
		return fmt.Errorf("--user %s: the user can read %s %q: let only root read it, with chmod 600", c.user, what, path)
	}
	return c.protect(what, &path)
}

// protectProgram protects this program, which root starts again.
func (c *config) protectProgram() error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	return c.protect("the program", &self)
}

// protectTunnel protects what the executor reads or starts, as root, to open the tunnel.
func (c *config) protectTunnel() error {
	switch c.tunnel.kind {
	case tunnelSSH:
		folder, hosts := filepath.Join(c.tunnel.ssh.Home, ".ssh"), c.tunnel.ssh.KnownHosts
		return errors.Join(
			c.protectSecretFile("--ssh-key", c.tunnel.ssh.KeyFile),
			c.protect("the folder of SSH keys and known hosts", &folder),
			c.protect("--ssh-known-hosts", &hosts),
		)
	case tunnelCloudflared:
		if program, err := exec.LookPath("cloudflared"); err == nil { // otherwise the tunnel reports it
			return c.protect("the program", &program)
		}
	}
	return nil
}
