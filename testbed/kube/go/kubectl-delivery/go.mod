module hvd-elastic.test/kubectl-delivery

go 1.23
