"""Options whose effect only a run shows, and the test that shows it: by file, test and option."""

PLACES = {
    "recipes/test_ablations.py": {
        "test_without_pcar_all_tokens_of_an_episode_count_alike": ["EvaluationSettings.pcar"],
        "test_three_strengths_of_pcar": [f"EvaluationSettings.{name}" for name in ("base", "most", "floor")],
        "test_thoughts_may_stand_outside_the_segments": ["EvaluationSettings.segment"],
        "test_a_score_off_the_scale": ["EvaluationSettings.bad_score"],
        "test_thoughts_before_an_evaluation": ["EvaluationSettings.think_before_evaluate"],
        "test_without_the_evaluation_reward": ["NoteSettings.bonus"],
        "test_letter_for_letter": ["NoteSettings.contain"],
        "test_tokens_of_a_scored_search_get_more_than_the_advantage": [
            "EvaluationSettings.brier",
            "SolverConfig.information_gain",
        ],
    },
    "recipes/test_eve_options.py": {
        "test_a_verifier_that_is_not_paid_for_may_be_asked_about_candidates": ["EveConfig.verify_candidates"],
        "test_a_made_up_span_is_gold_in_the_paper_only": ["EvidenceConfig.gold"],
        "test_an_altered_quotation_can_be_left_unpaid": ["EvidenceConfig.paid"],
        "test_a_solver_paid_for_its_answer_alone": ["EvidenceConfig.span_weight"],
        "test_documents_that_questions_lead_to": ["EveConfig.prompt_source", "EveConfig.prompt_questions"],
        "test_the_same_documents_in_both_phases": ["EveConfig.phase_b_documents"],
        "test_how_much_is_held_out": ["EveConfig.held_out_share"],
        "test_a_cold_verifier_says_the_same_every_time": ["VerifierSettings.temperature"],
        "test_a_teacher_forced_verifier": ["VerifierSettings.form"],
        "test_a_hosted_verifier": ["VerifierSettings.model"],
    },
    "recipes/test_given_questions.py": {
        "test_they_come_before_the_proposers_own_which_do_not_repeat_them": ["GenerationConfig.given"],
        "test_given_again_they_are_attempted_by_the_solver_of_every_iteration": ["GenerationConfig.given_again"],
    },
    "recipes/test_held_back_documents.py": {
        "test_no_proposal_is_about_a_document_that_is_held_back": ["ProposerConfig.held_back"]
    },
    "recipes/test_validation.py": {"test_a_run_stops_when_validation_no_longer_rises": ["SelfPlayConfig.stop_after"]},
    "training/test_hardening.py": {
        "test_a_run_rewards_what_passed_the_gate_and_was_hard": ["ProposerConfig.task", "HardeningConfig.examiner"],
        "test_the_limits_of_the_gate_are_settings": [
            f"HardeningConfig.{name}" for name in ("tries", "min_read", "max_known", "topk")
        ],
        "test_facts_that_the_solver_answers_sometimes_are_reworded_and_practised": ["HardeningConfig.attempts"],
    },
    "recipes/test_practice_config.py": {"test_the_number_of_steps": ["PracticeConfig.epochs"]},
    "recipes/test_practice_runs.py": {"test_the_questions_dr_zero_wrote_train_another": ["PracticeConfig.questions"]},
    "recipes/test_proposer_parts.py": {
        "test_a_proposal_without_company_is_worth_what_was_set": ["ProposerConfig.lone_group"]
    },
    "recipes/test_sampling_server_runs.py": {
        "test_every_step_is_sampled_from_the_adapter_of_the_step_before": [
            "EngineSettings.url",
            "EngineSettings.folder",
        ],
        "test_a_server_that_cannot_do_it_is_refused_before_there_is_a_run": ["EngineSettings.served_model"],
    },
    "policies/test_vllm_sampler.py": {"test_a_server_that_is_lost_ends_in_one_line": ["EngineSettings.patience_s"]},
    "recipes/test_score_parts.py": {
        "test_a_report_is_paid_once_it_was_looked_into_as_often_as_tau_says": ["ScoreEvaluatorConfig.tau"],
        "test_the_baseline_moves_as_slowly_as_beta_says": ["ScoreEvaluatorConfig.beta"],
        "test_the_evaluator_learns_from_the_tokens_that_were_set": ["ScoreEvaluatorConfig.tokens"],
        "test_conclusions_are_compared_by_what_was_set": ["ScoreEvaluatorConfig.agreement"],
        "test_two_rubrics_may_be_each_others_baseline": ["ScoreEvaluatorConfig.baseline"],
        "test_rubrics_and_reports_may_be_learned_from_in_one_unit": ["ScoreEvaluatorConfig.aggregation"],
        "test_an_evaluator_is_told_what_was_set": ["ScoreConfig.schedule", "ScoreConfig.initial_retrieval"],
        "test_a_step_has_as_many_questions_and_reports_as_were_set": ["WriterConfig.batch", "WriterConfig.attempts"],
        "test_the_harness_is_made_anew_when_it_is_due": ["HarnessSettings.every"],
        "test_signals_may_be_given_by_a_coin": ["ResearchConfig.shuffle_advantages"],
    },
    "recipes/test_score_train.py": {
        "test_a_fixed_rubric_is_never_asked_for": ["ResearchConfig.fixed_rubric"],
        "test_a_rubric_a_step_is_everybodys_and_a_rubric_a_question_its_own": [
            "ScoreConfig.rubric_scope",
            "ScoreEvaluatorConfig.shown_questions",
        ],
        "test_a_batch_may_be_learned_from_in_parts": ["WriterConfig.minibatch"],
        "test_a_judge_that_never_changes": ["ReportGrpoConfig.judge"],
        "test_each_role_has_moments_of_its_own_if_so_wished": ["ScoreEvaluatorConfig.moments"],
        "test_an_evaluator_of_its_own_weights_leaves_the_solvers_alone": ["ScoreEvaluatorConfig.weights"],
        "test_pairs_are_the_best_and_the_worst_of_a_question": ["ReportDpoConfig.dpo_beta"],
        "test_the_evaluator_learns_at_its_own_rate_and_every_so_often": [
            "ScoreEvaluatorConfig.alpha",
            "ScoreEvaluatorConfig.every",
        ],
        "test_who_is_frozen_learns_nothing": [
            "ScoreEvaluatorConfig.frozen",
            "ScoreSolverConfig.frozen",
            "WriterConfig.steps",
        ],
        "test_what_a_dry_run_says": ["ResearchConfig.questions"],
        "test_two_steps_play_all_three_acts_and_learn": ["EvaluatorConfig.passes"],
    },
    "recipes/test_iterations.py": {
        "test_carrying_on_keeps_the_moments_and_the_place_in_the_schedule": ["ProposerConfig.carry_on"],
        "test_an_iteration_that_repeats_the_last_one_raises_an_alarm": ["HealthSettings.min_new_questions"],
        "test_repeats_by_hand": ["HealthSettings.max_repeats"],
    },
    "training/test_tinker_contract.py": {
        "test_a_server_that_is_lost_ends_in_one_line": ["TrainerSettings.patience_s"],
        "test_the_normalisation_that_is_set_is_the_servers": ["TrainerSettings.loss_normalisation"],
    },
    "training/test_trainer_check.py": {
        "test_a_url_without_the_trainer_is_refused": ["TrainerSettings.url", "TrainerSettings.kind"],
        "test_the_servers_name_of_the_base": ["TrainerSettings.model"],
    },
    "training/test_packing.py": {"test_compiled_layers_change_no_gradient": ["LearnerSettings.compiled"]},
    "training/test_token_traces.py": {"test_as_many_as_were_asked_for_are_stored": ["RunConfig.traced_episodes"]},
    "training/test_phases.py": {
        "test_a_step_takes_its_share_of_questions_that_need_several_searches": ["SolverConfig.several_share"]
    },
    "training/test_information_gain.py": {
        "test_credits_are_the_gains_relative_to_those_of_other_attempts_at_the_question": ["SolverConfig.min_gain_std"]
    },
    "training/test_solver_phase.py": {
        "test_hidden_questions_are_practised_in_their_share": [
            f"AbstentionSettings.{name}" for name in ("allowed", "reward", "needless", "hidden_share")
        ]
    },
    "training/test_solvers.py": {
        "test_epsilon_weakens_scores_that_hardly_differ": ["EvaluationSettings.epsilon"],
        "test_an_oracle_scores_by_what_was_found": ["EvaluationSettings.scores"],
        "test_permuted_scores_are_the_same_in_another_order": ["EvaluationSettings.permuted"],
        "test_a_grounded_note_is_about_what_a_search_before_it_returned": ["NoteSettings.note_rule"],
    },
}
