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
		"lightning":            {env{"LIGHTNING_CLOUDSPACE_HOST": "x"}, nil, contract.Platform{Name: "lightning"}},
		"sagemaker":            {env{"SAGEMAKER_APP_TYPE": "JupyterLab"}, nil, contract.Platform{Name: "sagemaker"}},
		"sagemaker studio lab": {nil, []string{"home/studio-lab-user/x"}, contract.Platform{Name: "sagemaker"}},
		"codespaces":           {env{"CODESPACES": "true"}, nil, contract.Platform{Name: "codespaces"}},
		"not codespaces":       {env{"CODESPACES": "false"}, nil, contract.Platform{Name: "machine"}},
		"runpod":               {env{"RUNPOD_POD_ID": "x"}, []string{".dockerenv"}, contract.Platform{Name: "runpod", Container: true}},
		"docker":               {nil, []string{".dockerenv"}, contract.Platform{Name: "container", Container: true}},
		"podman":               {nil, []string{"run/.containerenv"}, contract.Platform{Name: "container", Container: true}},
		"kubernetes":           {env{"KUBERNETES_SERVICE_HOST": "10.0.0.1"}, nil, contract.Platform{Name: "container", Container: true}},
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
