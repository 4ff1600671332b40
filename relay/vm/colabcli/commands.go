package colabcli

import (
	"fmt"
	"slices"
)

// Everything that Google's program may be called with. A test compares it with the source of
// the program's released package, and argv passes nothing else.
var (
	session = option{flag: "-s", value: true}
	gpu     = option{flag: "--gpu", value: true}
	tpu     = option{flag: "--tpu", value: true}
	highMem = option{flag: "--high-mem"}
	timeout = option{flag: "--timeout", value: true} // seconds

	create   = command{name: "new", options: []option{session, gpu, tpu, highMem}}
	sessions = command{name: "sessions"}
	upload   = command{name: "upload", options: []option{session}, arguments: 2}
	execute  = command{name: "exec", options: []option{session, timeout}} // the code is its stdin
	stop     = command{name: "stop", options: []option{session}}

	commands = []command{create, sessions, upload, execute, stop}
)

// command is a command of Google's program.
type command struct {
	name      string
	options   []option
	arguments int // how many it is always given
}

// option is an option of a command; value says that a value follows it.
type option struct {
	flag  string
	value bool
}

// setting is an option with its value.
type setting struct {
	option
	to string
}

// argv returns the arguments of the program. It panics if they are not in the table above.
func (c command) argv(settings []setting, arguments ...string) []string {
	argv := []string{c.name}
	for _, s := range settings {
		if !slices.Contains(c.options, s.option) {
			panic(fmt.Sprintf("colabcli: colab %s is not called with %s", c.name, s.flag))
		}
		argv = append(argv, s.flag)
		if s.value {
			argv = append(argv, s.to)
		}
	}
	if len(arguments) != c.arguments {
		panic(fmt.Sprintf("colabcli: colab %s is called with %d arguments, not %d", c.name, c.arguments, len(arguments)))
	}
	return append(argv, arguments...)
}
