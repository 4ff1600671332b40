package bootstrap

import (
	"strings"
	"testing"

	"colabrelay/shared/tier"
)

// allSecrets are the secrets of a notebook in which everything is set up.
func allSecrets() map[string]pageSecret {
	return map[string]pageSecret{
		"EXECUTOR_SECRET": granted(testSecret), "NGROK_AUTHTOKEN": granted(" " + testToken + "\n"), "NGROK_DOMAIN": granted(testDomain),
	}
}

func TestSecretsFromThePageReachTheExecutorAndNotTheNotebook(t *testing.T) {
	tier.Long(t)
	want := strings.Join([]string{testSecret, testToken, testDomain, "1", "--domain=" + testDomain, ""}, "\n")
	for name, place := range map[string]func(*vm, map[string]pageSecret){"Colab": (*vm).onColab, "Kaggle": (*vm).onKaggle} {
		t.Run(name, func(t *testing.T) {
			r, _ := serve(t, standIn)
			v := newVM(t, r)
			place(v, allSecrets())
			v.cell += "\nprint('left in the environment:', [name for name in os.environ if name in given])\n"
			out, p := v.runPage()
			if out != "stand-in executor runs\nleft in the environment: []" || v.seen() != want {
				t.Errorf("the cell showed\n%s\nand the program saw\n%s", out, v.seen())
			}
			if name == "Kaggle" && len(p.asked) != 0 {
				t.Errorf("on Kaggle, Colab's page was asked for %q", p.asked)
			}
		})
	}
}
