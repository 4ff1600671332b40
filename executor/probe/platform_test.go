package probe

import (
	"testing"

	"colabrelay/shared/contract"
)

func TestPlatformsAreDetectedInThisOrder(t *testing.T) {
	type env = map[string]string
	for name, test := range map[string]struct {
		env   env
		files []string
		want  contract.Platform
	}{
		"kaggle, though colab's library is there": {
			env{"KAGGLE_KERNEL_RUN_TYPE": "Interactive", "COLAB_RELEASE_TAG": "release"},
			[]string{".dockerenv", "var/colab/hostname"},
			contract.Platform{Name: "kaggle", Container: true},
		},
		"colab by file":        {nil, []string{"var/colab/hostname", ".dockerenv"}, contract.Platform{Name: "colab", Container: true}},
		"colab by environment": {env{"COLAB_RELEASE_TAG": "release-colab"}, nil, contract.Platform{Name: "colab"}},
		"sagemaker studio lab": {nil, []string{"home/studio-lab-user/x"}, contract.Platform{Name: "sagemaker"}},
		"not codespaces":       {env{"CODESPACES": "false"}, nil, contract.Platform{Name: "machine"}},
		"docker":               {nil, []string{".dockerenv"}, contract.Platform{Name: "container", Container: true}},
		"a machine":            {nil, nil, contract.Platform{Name: "machine"}},
	} {
		t.Run(name, func(t *testing.T) {
			files := map[string]string{}
			for _, f := range test.files {
				files[f] = ""
			}
			got := Platform(func(name string) string { return test.env[name] }, tree(files))
			if got != test.want {
				t.Errorf("got %+v, want %+v", got, test.want)
			}
		})
	}
}
