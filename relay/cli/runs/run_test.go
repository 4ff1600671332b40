package runs

import (
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"colabrelay/relay/cli"
	"colabrelay/relay/config"
)

func TestTheCommandLineIsRepeatedWithMoreFiles(t *testing.T) {
	long := strings.Repeat("1+", 100) + "1"
	for _, c := range []struct {
		line []string
		want string
	}{
		{[]string{"main.py"}, "--with x.py main.py"},
		{[]string{"--runtime", "gpu", "--with", "my file", "--timeout", "90m", "main.py", "--epochs", "3", "a b", ""}, "--runtime gpu --timeout 1h30m --with 'my file' --with x.py main.py --epochs 3 'a b' ''"},
		{[]string{"--timeout", "10s", "-d", "--json", "main.py"}, "--detach --json --timeout 10s --with x.py main.py"},
		{[]string{"--timeout", "1h", "--detach=false", "--", "-a.py"}, "--timeout 1h --with x.py -- -a.py"},
		{[]string{"-c", "import x; x.f()"}, "--with x.py -c 'import x; x.f()'"},
		{[]string{"-c", "import x\nx.f()"}, "--with x.py -c ..."},
		{[]string{"-c", long}, "--with x.py -c ..."},
		{[]string{"--runtime", "b c"}, "--runtime 'b c' --with x.py -"},
		{[]string{"-"}, "--with x.py -"},
	} {
		o := &runOptions{RunsCommand: cli.RunsCommand{Set: &config.Settings{}}}
		cmd := &cobra.Command{}
		o.addFlags(cmd)
		if err := cmd.ParseFlags(c.line); err != nil {
			t.Fatal(err)
		}
		o.given, o.flags, o.args = cmd.Flags().Changed("code"), cmd.Flags(), cmd.Flags().Args()
		if got := o.again("x.py"); got != "colab-relay run "+c.want {
			t.Errorf("%q: %s, want colab-relay run %s", c.line, got, c.want)
		}
	}
}
