package setup

import "testing"

func TestTheCommandThatComesBackFindsTheSameMachine(t *testing.T) {
	o := &sshOptions{name: "gpu", python: "~/v/bin/python", workDir: "my work"}
	if got, want := o.again("me@lab", []string{"-o", "ProxyCommand=nc %h %p"}, "--stop"), "colab-relay ssh me@lab --stop --name gpu --python '~/v/bin/python' --workdir 'my work' -- -o 'ProxyCommand=nc %h %p'"; got != want {
		t.Errorf("it is %s, want %s", got, want)
	}
	o = &sshOptions{name: "lab", python: defaultPython, workDir: defaultWorkDir}
	if got, want := o.again("lab", nil), "colab-relay ssh lab"; got != want {
		t.Errorf("it is %s, want %s", got, want)
	}
}
