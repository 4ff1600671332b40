package bootstrap

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
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

func TestALineReportsEachMissingSecretAndTheCellContinues(t *testing.T) {
	tier.Long(t)
	for name, c := range map[string]struct {
		answers map[string]pageSecret
		says    []string
	}{
		"no access, and not there": {
			map[string]pageSecret{"EXECUTOR_SECRET": {Exists: true}, "NGROK_AUTHTOKEN": {}},
			[]string{
				"EXECUTOR_SECRET: this notebook has no access to it (switch it on under the key on the left); the executor generates one",
				"NGROK_AUTHTOKEN: it is not in Colab's Secrets (the key on the left); there is no public URL, so only this VM itself can reach the executor.",
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			r, _ := serve(t, standIn)
			v := newVM(t, r)
			secrets := allSecrets()
			maps.Copy(secrets, c.answers)
			v.onColab(secrets)
			out, _ := v.runPage()
			lines := strings.Split(out, "\n")
			if len(lines) != 3 || lines[2] != "stand-in executor runs" {
				t.Fatalf("the cell showed:\n%s", out)
			}
			for i, says := range c.says {
				if !strings.HasPrefix(lines[i], says) {
					t.Errorf("line %d is %q, want %q", i, lines[i], says)
				}
			}
		})
	}
}

func TestAPageThatDoesNotAnswerIsAskedOnlyOnce(t *testing.T) {
	tier.Long(t)
	r, _ := serve(t, standIn)
	v := newVM(t, r)
	v.onColab(nil)
	delete(v.env, "PAGE_SECRETS")
	v.env["PAGE_TIMEOUT"], v.env["NGROK_AUTHTOKEN"] = "0.3", testToken
	out, p := v.runPage()
	if !slices.Equal(p.asked, []string{"EXECUTOR_SECRET"}) {
		t.Errorf("the page was asked for %q", p.asked)
	}
	for _, line := range []string{
		"EXECUTOR_SECRET: the page did not answer (keep the notebook's tab open and run the cell again); the executor generates one",
		"NGROK_AUTHTOKEN: the page did not answer (keep the notebook's tab open and run the cell again); the one in the environment is used.",
	} {
		if !strings.Contains(out, line) {
			t.Errorf("%q is missing in:\n%s", line, out)
		}
	}
}

func TestEachRefusalOfKaggleIsOneLine(t *testing.T) {
	tier.Long(t)
	for name, c := range map[string]struct {
		unset string
		says  string
	}{
		"not attached": {"", "NGROK_AUTHTOKEN: it is not in Kaggle's Secrets, or not attached (Add-ons, Secrets); there is no public URL"},
		"no token":     {"KAGGLE_USER_SECRETS_TOKEN", "NGROK_AUTHTOKEN: Kaggle gives this notebook no secrets (Add-ons, Secrets); there is no public URL"},
	} {
		t.Run(name, func(t *testing.T) {
			r, _ := serve(t, standIn)
			v := newVM(t, r)
			v.onKaggle(map[string]pageSecret{"EXECUTOR_SECRET": granted(testSecret)})
			delete(v.env, c.unset)
			if out := v.run(); !strings.Contains(out, c.says) || !strings.HasSuffix(out, "stand-in executor runs") {
				t.Errorf("the cell showed:\n%s", out)
			}
		})
	}
}

func TestDriveIsMountedBeforeTheExecutorStarts(t *testing.T) {
	tier.Long(t)
	r, downloads := serve(t, standIn)
	v := newVM(t, r)
	v.onColab(allSecrets())
	v.fill("MOUNT_DRIVE", "True")
	drive := t.TempDir()
	v.env["PAGE_DRIVE"] = drive
	write(t, filepath.Join(drive, "MyDrive", asset), standIn)
	if out, _ := v.runPage(); out != "Mounted at "+filepath.Join(v.dir, "drive")+"\nstand-in executor runs" || *downloads != 0 {
		t.Errorf("the release was downloaded %d times, and the cell showed:\n%s", *downloads, out)
	}
}

func TestTheCellContinuesWithoutDrive(t *testing.T) {
	tier.Long(t)
	r, _ := serve(t, standIn)
	t.Run("denied", func(t *testing.T) {
		v := newVM(t, r)
		v.onColab(allSecrets())
		v.fill("MOUNT_DRIVE", "True")
		v.env["PAGE_DENIES"] = "1"
		want := "Drive: it could not be mounted (MessageError: Error: credential propagation was unsuccessful); continuing without it.\nstand-in executor runs"
		if out, _ := v.runPage(); out != want {
			t.Errorf("the cell showed:\n%s", out)
		}
	})
	t.Run("not on Colab", func(t *testing.T) {
		v := newVM(t, r)
		v.fill("MOUNT_DRIVE", "True")
		if out := v.run(); !strings.Contains(out, "Drive: only Colab can mount it; continuing without it.\nstand-in executor runs") {
			t.Errorf("the cell showed:\n%s", out)
		}
	})
	if _, err := os.Stat("/content"); err == nil {
		t.Log("this machine has a /content: the cell looks for uploads there too")
	}
}
